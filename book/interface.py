"""The words of the interface: the theme's and Sphinx's own that our pages show, and ours."""

from __future__ import annotations

from book.catalogues import Source


def sources() -> list[Source]:
    """The words of the interface, in English."""
    return []
