"""Sphinx extension: formulas as MathML, made when the book is built, instead of by a script.

Sphinx prefers a renderer that is registered beside its default, MathJax.
"""

from __future__ import annotations

import html

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.locale import _
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

from book.theme.mathml import mathml

logger = logging.getLogger(__name__)


def render(node: nodes.Element, display: bool) -> str:
    """The formula of a node; one that cannot be typeset is a warning, and shown as TeX."""
    try:
        return mathml(node.astext(), display)
    except ValueError as error:
        logger.warning("formula %s: %s", node.astext(), error, location=node)
        return f"<code>{html.escape(node.astext())}</code>"


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(render(node, display=False))
    raise nodes.SkipNode


def visit_displaymath(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula, with its number and permalink as Sphinx writes them."""
    self.body.append(self.starttag(node, "div", CLASS="math"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, _("Link to this equation"))
        self.body.append("</span>")
    self.body.append(f'<div class="formula">{render(node, display=True)}</div></div>\n')
    raise nodes.SkipNode


def add_style(app: Sphinx, config: Config) -> None:
    """Add the style and its font; accessible.js lets the keyboard scroll a wide formula."""
    config.myst_update_mathjax = False  # else every page has classes for MathJax
    app.add_css_file("math.css")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    app.connect("config-inited", add_style)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
