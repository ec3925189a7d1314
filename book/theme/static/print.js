// On paper a page is light and everything on it is open; afterwards it is as it was.
"use strict";

{
  const { dataset } = document.documentElement;
  let theme;
  let closed;

  addEventListener("beforeprint", () => {
    theme = dataset.theme;
    closed = [...document.querySelectorAll("article details:not([open], .original)")];
    dataset.theme = "light";
    for (const details of closed) details.open = true;
  });

  addEventListener("afterprint", () => {
    dataset.theme = theme;
    for (const details of closed) details.open = false;
  });
}
