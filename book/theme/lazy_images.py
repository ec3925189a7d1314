"""Sphinx extension: images are loaded when they come near, and keep their place until then."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from sphinx.application import Sphinx

from book.extensions import PARALLEL_SAFE

IMAGE = re.compile(r'<img (?=[^>]*\bsrc="[^"]*/_images/([^"]+)")(?![^>]*\b(?:loading|width)=)')
LENGTH = re.compile(r"([\d.]+)(px|pt|in|cm|mm)?")
PIXELS = {None: 1, "px": 1, "pt": 4 / 3, "in": 96, "cm": 96 / 2.54, "mm": 96 / 25.4}


def size(drawing: Path) -> tuple[int, int] | None:
    """Width and height of an SVG drawing in CSS pixels; None for what has none or is no SVG."""
    if drawing.suffix != ".svg":
        return None
    root = ElementTree.parse(drawing).getroot()
    lengths = [LENGTH.fullmatch(root.get(side, "")) for side in ("width", "height")]
    if not all(lengths):
        lengths = [LENGTH.fullmatch(side) for side in root.get("viewBox", "").split()[2:]]
    sides = [round(float(m[1]) * PIXELS[m[2]]) for m in lengths if m]
    return (sides[0], sides[1]) if len(sides) == 2 else None


def files(app: Sphinx) -> dict[str, Path]:
    """The images of the book, each by its name in _images/."""
    return {name: Path(app.srcdir, source) for source, name in app.builder.images.items()}


def add_attributes(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Say of each image of the text how large it is, and that it may come later."""
    found = files(app)

    def attributes(match: re.Match[str]) -> str:
        source = found.get(match[1])
        sides = source and size(source)
        place = 'width="{}" height="{}" '.format(*sides) if sides else ""
        return f'<img loading="lazy" decoding="async" {place}'

    if tree:
        context["body"] = IMAGE.sub(attributes, context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handler."""
    app.connect("html-page-context", add_attributes)
    return PARALLEL_SAFE
