"""Sphinx extension and printer: the book on paper, page by page or as one PDF."""

from pathlib import Path

from book.extensions import setup_of

setup = setup_of(__name__, Path(__file__).parent, "printing")
