"""Sphinx extension: how the pages look, on every screen and without one."""

from pathlib import Path

from book.extensions import setup_of

setup = setup_of(
    __name__,
    Path(__file__).parent,
    "accessibility",
    "assets",
    "icons",
    "lazy_images",
    "math",
    "legible_drawings",
)
