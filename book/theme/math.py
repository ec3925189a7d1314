"""Sphinx extension: formulas as MathML, made when the book is built, instead of by a script.

math-core sets them. Sphinx prefers a renderer that is registered beside its default, MathJax.
"""

import html
import re

from docutils import nodes
from math_core import LatexError, LatexToMathML
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.locale import _
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

from book.extensions import PARALLEL_SAFE

logger = logging.getLogger(__name__)
converter = LatexToMathML(fancy_error=False)
# Sphinx numbers the whole formula, so its lines must not have numbers of their own.
ENVIRONMENTS = {"align": "aligned", "gather": "gathered", "multline": "multline*"}
ENVIRONMENTS |= {"split": "aligned"}  # which math-core lacks
ENVIRONMENT = re.compile(rf"\\(begin|end){{({'|'.join(ENVIRONMENTS)})\*?}}")


def unnumbered(tex: str) -> str:
    """The formula without numbers, and with lines that stand in no environment put into one."""
    tex = re.sub(r"\\(begin|end)\{equation\*?\}", "", tex).strip()
    tex = ENVIRONMENT.sub(lambda match: rf"\{match[1]}{{{ENVIRONMENTS[match[2]]}}}", tex)
    tex = re.sub(r"\n\s*\n", r" \\\\ ", tex)  # for Sphinx, a blank line ends a line
    return (
        tex if r"\\" not in tex or r"\begin" in tex else rf"\begin{{aligned}}{tex}\end{{aligned}}"
    )


def mathml(tex: str, display: bool = False) -> str:
    """A formula as a `math` element that keeps its TeX; LatexError says what is wrong with it."""
    found = converter.convert_with_local_state(unnumbered(tex), displaystyle=display)
    if "(??)" in found:
        raise LatexError("a reference to another formula leads nowhere")
    alternative = html.escape(" ".join(tex.split()))
    return found.replace("<math", f'<math class="notranslate" alttext="{alternative}"', 1)


def render(node: nodes.Element, display: bool) -> str:
    """The formula of a node; one that cannot be typeset is a warning, and shown as TeX."""
    try:
        return mathml(node.astext(), display)
    except LatexError as error:
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
    return PARALLEL_SAFE
