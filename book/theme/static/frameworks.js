// The switch of frameworks keeps the section; the choice is remembered: after MXNet, links lead to
// the MXNet twin of a page. TWINS, which the build writes, knows the twins and what they share.
"use strict";

(() => {
  // Links that mean the page they name; an author marks such with the class keep-framework.
  const KEPT = ".frameworks, .languages, .keep-framework, #search-results";
  const root = new URL(document.documentElement.dataset.content_root, location.href).href;

  const remembered = () => {
    try { return localStorage.getItem("framework"); } catch { return null; }
  };
  const remember = (framework) => {
    try { localStorage.setItem("framework", framework); } catch { /* not remembered */ }
  };

  /** What an address leads to: a page of this language, such as chapters/index, and an id. */
  function parts(address) {
    const [, path, id = ""] = address.match(/^([^?#]*)[^#]*#?(.*)$/);
    const page = path.startsWith(root) ? path.slice(root.length).replace(/\.html$/, "") : null;
    return { page, id };
  }

  const here = parts(location.href).page;
  const isMxnet = Object.hasOwn(TWINS.pytorch, here);

  /** The address of an address' twin in MXNet; null where a link should stay as it is. */
  function inMxnet(address) {
    const { page, id } = parts(address);
    const twin = TWINS.mxnet[page];
    if (!twin || page === here) return null;
    const section = id ? twin.sections[id] : "";
    if (section === undefined) return null; // only the PyTorch page has it
    // From a page to its own top leads no link: this one means the other framework.
    if (twin.page === here && !section) return null;
    return `${root}${twin.page}.html${section ? `#${section}` : ""}`;
  }

  /** The section of the twin that the reader sees here, or the nearest before it. */
  function sameSection({ sections }) {
    const all = [...document.querySelectorAll("article section[id]")].map(({ id }) => id);
    const read = all.slice(0, all.indexOf(currentSection()) + 1);
    return sections[read.findLast((id) => Object.hasOwn(sections, id))] ?? "";
  }

  /** Let the links of the page lead where the reader's choice says. */
  function direct() {
    // Who has not chosen goes on in the framework that is open.
    const toMxnet = (remembered() ?? (isMxnet ? "mxnet" : "pytorch")) === "mxnet";
    for (const link of document.links) {
      if (link.closest(KEPT)) continue;
      const written = link.dataset.written;
      if (written !== undefined) link.setAttribute("href", written);
      const twin = toMxnet ? inMxnet(link.href) : null;
      if (!twin) continue;
      link.dataset.written = written ?? link.getAttribute("href");
      link.href = twin;
    }
  }

  function choose(event) {
    const link = event.currentTarget;
    const { framework } = link.dataset;
    remember(framework);
    direct(); // the page may stay open
    if (link.hasAttribute("aria-current")) event.preventDefault(); // the page is here already
    else link.hash = sameSection(TWINS[framework][here]);
  }

  document.addEventListener("DOMContentLoaded", () => {
    for (const link of document.querySelectorAll(".frameworks a")) {
      link.addEventListener("click", choose);
      link.addEventListener("auxclick", choose); // in a new tab
    }
    direct();
  });
  window.addEventListener("pageshow", (event) => { if (event.persisted) direct(); }); // went back
  window.addEventListener("storage", ({ key }) => { // chosen in another window
    if (key === "framework" || key === null) direct();
  });
})();
