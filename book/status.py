"""Sphinx directive `{translation-status}`: chapter x language, counted from the catalogues."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class TranslationStatus(SphinxDirective):
    """A table of what is translated, stale and missing."""

    def run(self) -> list[nodes.Node]:
        return []


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("translation-status", TranslationStatus)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
