// The switch of frameworks keeps the section, and the choice is remembered: who chose MXNet goes on,
// with the links to the chapters before and after, in MXNet where a chapter has such an edition.
"use strict";

(() => {
  const twins = document.currentScript.dataset.twins.split(" ");
  const isMxnet = /\/gluon\/[^/]*$/.test(location.pathname);

  /** Lead to the section that the reader sees, or to the nearest before it that the twin has. */
  function choose({ currentTarget: link }) {
    try { localStorage.setItem("framework", link.textContent); } catch { /* not remembered */ }
    const shared = link.dataset.sections.split(" ");
    const all = [...document.querySelectorAll("article section[id]")].map(({ id }) => id);
    const read = all.slice(0, all.indexOf(currentSection()) + 1);
    link.hash = read.findLast((id) => shared.includes(id)) ?? "";
  }

  document.addEventListener("DOMContentLoaded", () => {
    const link = document.querySelector(".frameworks a");
    for (const kind of ["click", "auxclick"]) link?.addEventListener(kind, choose);
    let chosen = isMxnet ? "MXNet" : "PyTorch"; // who has not chosen goes on in what is open
    try { chosen = localStorage.getItem("framework") ?? chosen; } catch { /* nothing is stored */ }
    if (chosen !== "MXNet") return;
    for (const way of document.querySelectorAll(".prev-next-footer a")) {
      if (twins.some((page) => way.pathname.endsWith(`/${page}.html`))) {
        way.pathname = way.pathname.replace(/[^/]*$/, "gluon/$&");
      }
    }
  });
})();
