"""Sphinx extension: how the book is found and shown elsewhere: cards, icons, the sitemap."""

from pathlib import Path

from book.extensions import setup_of

setup = setup_of(__name__, Path(__file__).parent, "sitemap", "social")
