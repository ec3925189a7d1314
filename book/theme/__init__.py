"""Sphinx extension: how the pages look, to a screen reader too, and what they load."""

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
