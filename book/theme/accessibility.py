"""Sphinx extension: pages for keyboards, screen readers, phones, and dark rooms.

Most of it is style (`accessible.css`); the script names buttons and lets the keyboard scroll.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

from book.extensions import PARALLEL_SAFE


def add_assets(app: Sphinx, config: Config) -> None:
    """Add the style and the script; 900 puts the style behind the extensions'."""
    app.add_css_file("accessible.css", priority=900)
    app.add_js_file("accessible.js", loading_method="defer")


def replace_deprecated_role(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Replace a role that ARIA 1.3 has deprecated, in lists that may hold list items only."""
    if "body" in context:
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handlers."""
    app.connect("config-inited", add_assets)
    app.connect("html-page-context", replace_deprecated_role)
    return PARALLEL_SAFE
