"""Sphinx extension: a page and its twin in the other framework, and the switch between them.

The MXNet edition of `chapters/<name>` is `chapters/gluon/<name>`. It stands at the place of its
twin: before and after it comes what comes before and after the PyTorch page.
"""

import re
from collections.abc import Container
from pathlib import PurePosixPath
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

from book.config import GLUON, pytorch_twin
from book.extensions import PARALLEL_SAFE


def twin(docname: str, docs: Container[str]) -> str | None:
    """The same page in the other framework, if it is among `docs`."""
    path = PurePosixPath(docname)
    other = pytorch_twin(docname) or str(path.parent / GLUON / path.name)
    return other if docname in docs and other in docs else None


def sections(page: nodes.document) -> list[str]:
    """The ids of its sections, except those that docutils made up: they mean nothing elsewhere."""
    ids = [section["ids"][0] for section in page.findall(nodes.section)]
    return [name for name in ids if not re.fullmatch(r"id\d+", name)]


def add_to_page(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Add the script, the ways to the neighbors, and what the template of the switch needs."""
    if not tree or not isinstance(app.builder, StandaloneHTMLBuilder):
        return
    docs = app.env.all_docs
    twins = sorted(name for name in docs if twin(name, docs) and not pytorch_twin(name))
    attributes: dict[str, Any] = {"data-twins": " ".join(twins)}
    app.add_js_file("frameworks.js", **attributes)
    place = pagename
    if other := twin(pagename, docs):
        shared = set(sections(tree)) & set(sections(app.env.get_doctree(other)))
        is_mxnet = pytorch_twin(pagename) == other
        context["twin"] = {"page": other, "is_mxnet": is_mxnet, "sections": sorted(shared)}
        place = other if is_mxnet else pagename
    for side, name in enumerate(("prev", "next"), 1):
        found = app.builder.relations.get(place, [None] * 3)[side]
        context[name] = None
        if found and pytorch_twin(found) not in docs:
            context[name] = {
                "link": app.builder.get_relative_uri(pagename, found),
                "title": app.builder.render_partial(app.env.titles[found])["title"],
            }


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handler; 400 is before the theme looks which of its templates are empty."""
    app.add_css_file("frameworks.css")
    app.connect("html-page-context", add_to_page, priority=400)
    return PARALLEL_SAFE
