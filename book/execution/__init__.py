"""Sphinx extension: chapters are executed once, and what they depend on is known."""

from pathlib import Path

from book.extensions import setup_of

setup = setup_of(
    __name__,
    Path(__file__).parent,
    "chapters",
    "side_by_side",
    "report",
    "saved_outputs",
    "provenance",
)
