"""Sphinx extension: every chapter as an executed notebook."""

from pathlib import Path

from book.extensions import setup_of

setup = setup_of(__name__, Path(__file__).parent, "builder")
