"""Sphinx extension: links to headings, figures, tables and equations, for the keyboard too."""

from sphinx.application import Sphinx

from book.extensions import PARALLEL_SAFE


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the style that shows them."""
    app.add_css_file("permalinks.css")
    return PARALLEL_SAFE
