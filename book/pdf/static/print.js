// Paper is light. What is folded on the screen is open there by print.css.
"use strict";

{
  const { dataset } = document.documentElement;
  let theme;
  addEventListener("beforeprint", () => { theme = dataset.theme; dataset.theme = "light"; });
  addEventListener("afterprint", () => { dataset.theme = theme; });
}
