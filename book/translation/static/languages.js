// The switch of languages keeps the section; the switch to the English beside a text is remembered.
"use strict";

const root = document.documentElement;
const remembered = () => {
  try { return localStorage.getItem("bilingual") === "on"; } catch { return false; }
};
root.classList.toggle("bilingual", remembered()); // before the page is drawn, so that nothing jumps

/** The heading of the section that the reader sees first. */
function currentSection() {
  const headings = document.querySelectorAll("article section[id] > :is(h1, h2, h3, h4)");
  const limit = window.innerHeight / 2;
  const above = [...headings].filter((heading) => heading.getBoundingClientRect().top < limit);
  return above.length > 1 ? above.at(-1).parentElement.id : "";
}

/** Change the page while what the reader sees first stays where it is. */
function keepInPlace(change) {
  const blocks = document.querySelectorAll("article :is(p, pre, h1, h2, h3, h4, figure, td)");
  const seen = [...blocks].find((block) => {
    const box = block.getBoundingClientRect();
    return box.height && box.bottom > 80 && !block.closest(".original");
  });
  const before = seen?.getBoundingClientRect().top;
  change();
  if (seen) window.scrollBy({ top: seen.getBoundingClientRect().top - before, behavior: "instant" });
}

document.addEventListener("DOMContentLoaded", () => {
  for (const link of document.querySelectorAll(".languages a")) {
    link.addEventListener("click", () => { link.hash = currentSection() || location.hash; });
  }
  const menu = document.querySelector(".languages details");
  document.addEventListener("click", (event) => {
    if (menu && !menu.contains(event.target)) menu.open = false;
  });
  menu?.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });

  const button = document.getElementById("bilingual");
  if (!button) return;
  button.setAttribute("aria-pressed", String(remembered()));
  button.addEventListener("click", () => {
    const on = !root.classList.contains("bilingual");
    keepInPlace(() => root.classList.toggle("bilingual", on));
    button.setAttribute("aria-pressed", String(on));
    try { localStorage.setItem("bilingual", on ? "on" : "off"); } catch { /* not remembered */ }
  });
});
