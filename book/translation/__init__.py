"""Sphinx extension: the book in several languages. Each module here is one part of it."""

from pathlib import Path

from book.extensions import setup_of

setup = setup_of(
    __name__,
    Path(__file__).parent,
    "catalogue_builder",
    "interface",
    "not_found",
    "originals",
    "search",
    "settings",
    "status",
    "switch",
)
