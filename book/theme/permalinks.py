"""Sphinx extension: links to headings, figures, tables and equations, for the keyboard too."""

from __future__ import annotations

from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the style that shows them."""
    app.add_css_file("permalinks.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
