// What the keyboard and screen readers need, and the theme and its extensions leave out.
"use strict";

(() => {
  const SCROLLING = ".formula, .picture, .pst-scrollable-table-container, pre";

  /** What scrolls can be focused, so that the arrow keys scroll it; the rest is no stop for Tab. */
  const scrolling = new ResizeObserver((changes) => {
    for (const { target: box } of changes) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  });

  /** Name the buttons that open answers after what they open; the extension names all alike. */
  function nameToggles() {
    for (const button of document.querySelectorAll("button.toggle-button")) {
      const title = button.closest(".admonition-title").textContent.trim();
      button.ariaLabel = `${title}: ${button.dataset.toggleHint}`;
    }
  }

  /** Name the copy buttons, which are mere icons, and say aloud what their tooltips show. */
  function nameCopyButtons() {
    const status = document.createElement("div");
    status.role = "status";
    status.className = "visually-hidden";
    document.body.append(status);
    for (const button of document.querySelectorAll("button.copybtn")) {
      button.ariaLabel = button.dataset.tooltip;
      button.addEventListener("click", () => {
        setTimeout(() => { status.textContent = button.dataset.tooltip; }, 100);
      });
    }
  }

  /** A sidebar that closes gives the focus back to its button: the theme takes it away. */
  function returnFocus() {
    for (const side of ["primary", "secondary"]) {
      const button = document.querySelector(`.${side}-toggle`);
      const dialog = document.getElementById(`pst-${side}-sidebar-modal`);
      dialog?.addEventListener("close", () => button?.focus());
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    for (const box of document.querySelectorAll(SCROLLING)) scrolling.observe(box);
    nameToggles();
    nameCopyButtons();
    returnFocus();
    document.addEventListener("click", nameToggles);
  });
})();
