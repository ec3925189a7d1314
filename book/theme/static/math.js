/* A formula that is wider than its box scrolls by keyboard; the others are no stop on the way. */
const boxes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
document.querySelectorAll(".formula").forEach((box) => boxes.observe(box));
