"""Sphinx extension: pages for keyboards, screen readers, phones, and dark rooms.

Most of it is style (`accessible.css`); the script names buttons and lets the keyboard scroll.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

STATIC = Path(__file__).parent / "static"


def add_own_files(app: Sphinx, config: Config) -> None:
    """Let Sphinx find the style and the script; 900 puts the style behind the extensions'."""
    config.html_static_path.append(str(STATIC))
    app.add_css_file("accessible.css", priority=900)
    app.add_js_file("accessible.js", loading_method="defer")


def mend(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Replace a role that ARIA 1.3 has deprecated, in lists that may hold list items only."""
    if "body" in context:
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handlers."""
    app.connect("config-inited", add_own_files)
    app.connect("html-page-context", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
