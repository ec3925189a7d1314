"""Sphinx extension: drawings stay legible on phones, by scrolling in a box of their own.

A drawing shrinks with the page until its smallest letters are `LEGIBLE` pixels high.
"""

import math
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from book.extensions import PARALLEL_SAFE
from book.theme.lazy_images import files

LEGIBLE = 9  # pixels
IMAGE = re.compile(r'<img\b[^>]*?\bsrc="[^"]*?([^"/]+\.svg)"[^>]*>')
WIDTH = re.compile(r'viewBox="\S+ \S+ (\S+) \S+"')
SIZE = re.compile(r"font-size:\s*([\d.]+)px")
OUTLINES = re.compile(r"scale\(([\d.]+) -\1\)")  # matplotlib draws letters that are 100 units high


def least_width(drawing: str) -> int:
    """The width in pixels at which the smallest letters of an SVG are just legible."""
    sizes = [float(size) for size in SIZE.findall(drawing)]
    sizes += [100 * float(scale) for scale in OUTLINES.findall(drawing)]
    width = WIDTH.search(drawing)
    return math.ceil(LEGIBLE / min(sizes) * float(width[1])) if sizes and width else 0


def box(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Put every drawing of a page into a box that scrolls."""
    found = files(app)

    def boxed(image: re.Match[str]) -> str:
        if image[1] not in found:
            return image[0]
        width = least_width(found[image[1]].read_text(encoding="utf-8"))
        return f'<span class="picture" style="--least-width: {width}px">{image[0]}</span>'

    if "body" in context:
        context["body"] = IMAGE.sub(boxed, context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handler."""
    app.connect("html-page-context", box)
    return PARALLEL_SAFE
