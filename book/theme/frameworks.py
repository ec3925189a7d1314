"""Sphinx extension: a page and its twin in the other framework, and the switch between them.

The MXNet edition of `chapters/<name>` is `chapters/gluon/<name>`. Where a book has both pages, both
show the switch, and the MXNet page stands at the place of its twin: before and after it comes what
comes before and after the PyTorch page.

After a choice of MXNet, the script lets links lead to MXNet pages. A link to what only the PyTorch
page has stays as it is, and so does one inside of anything with the class `keep-framework`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from pathlib import Path, PurePosixPath
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.config import Config
from sphinx.environment import BuildEnvironment

from book.facts import GLUON, pytorch_twin

NAMES = {"pytorch": "PyTorch", "mxnet": "MXNet"}
NUMBERED = re.compile(r"id\d+")  # an id that docutils made up: it means nothing on another page
DATA = "twins.js"


def twin(docname: str, docs: Container[str]) -> str | None:
    """The same page in the other framework, if it is among `docs`."""
    path = PurePosixPath(docname)
    other = pytorch_twin(docname) or str(path.parent / GLUON / path.name)
    return other if docname in docs and other in docs else None


def names(section: nodes.section) -> list[str]:
    """What a section and its twin have in common: the heading's id, the label without `gluon`."""
    known = [name for name in section["ids"] if not NUMBERED.fullmatch(name)]
    return [re.sub(rf"^(sec-)?{GLUON}-", r"\1", name) for name in known]


def counterparts(page: nodes.document, other: nodes.document) -> dict[str, str]:
    """The ids of the sections that a page shares with its twin, and the id in the twin.

    The whole page is the twin's whole page, whose id is "".
    """
    of_twin: dict[str, str] = {}
    for section in other.findall(nodes.section):
        for name in names(section):
            of_twin.setdefault(name, section["ids"][0])
    found: dict[str, str] = {}
    for section in page.findall(nodes.section):
        if section.parent is page:
            found |= dict.fromkeys(section["ids"], "")
        elif shared := [of_twin[name] for name in names(section) if name in of_twin]:
            found |= dict.fromkeys(section["ids"], shared[0])
    return found


def twins(env: BuildEnvironment) -> dict[str, dict[str, Any]]:
    """For each framework: the pages that have a twin in it, the twin, and the shared sections."""
    found: dict[str, dict[str, Any]] = {framework: {} for framework in NAMES}
    for docname in sorted(env.all_docs):
        if other := twin(docname, env.all_docs):
            framework = "pytorch" if pytorch_twin(docname) else "mxnet"
            sections = counterparts(env.get_doctree(docname), env.get_doctree(other))
            found[framework][docname] = {"page": other, "sections": sections}
    return found


def neighbor(builder: StandaloneHTMLBuilder, docname: str, side: int) -> str | None:
    """The page before (side 1) or after (side 2) a page for a reader of its framework."""
    docs = builder.env.all_docs
    is_mxnet = bool(pytorch_twin(docname) and twin(docname, docs))
    found = pytorch_twin(docname) if is_mxnet else docname
    while found := builder.relations.get(found or "", [None] * 3)[side]:
        if not (pytorch_twin(found) and twin(found, docs)):
            return (is_mxnet and twin(found, docs)) or found
    return None


def add_to_page(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Fill in what the template of the switch needs, and the ways to the neighbors."""
    if not tree or not isinstance(app.builder, StandaloneHTMLBuilder):
        return
    if other := twin(pagename, app.env.all_docs):
        pytorch, mxnet = (other, pagename) if pytorch_twin(pagename) else (pagename, other)
        pages = {"pytorch": pytorch, "mxnet": mxnet}
        context["frameworks"] = [
            (framework, NAMES[framework], page, page == pagename)
            for framework, page in pages.items()
        ]
    for side, name in enumerate(("prev", "next"), 1):
        found = neighbor(app.builder, pagename, side)
        context[name] = found and {
            "link": app.builder.get_relative_uri(pagename, found),
            "title": app.builder.render_partial(app.env.titles[found])["title"],
        }


def with_other_twins(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """The pages whose twin came or went: they are written again."""
    now = {docname for docname in env.all_docs if twin(docname, env.all_docs)}
    before = vars(env).get("twins", set())
    env.twins = now  # type: ignore[attr-defined]
    return sorted((before ^ now) & set(env.all_docs))


def write_data(app: Sphinx, builder: Builder) -> None:
    """Write the twins for the script, before pages link to it: a link holds the file's digest."""
    if builder.format == "html":
        target = Path(builder.outdir, "_static", DATA)
        target.parent.mkdir(parents=True, exist_ok=True)
        data = json.dumps(twins(app.env), separators=(",", ":"))
        target.write_text(f"const TWINS = {data};\n", encoding="utf-8")


def add_own_files(app: Sphinx, config: Config) -> None:
    """Add the style and the scripts."""
    app.add_css_file("frameworks.css")
    app.add_js_file(DATA)
    app.add_js_file("frameworks.js")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handlers; 400 is before the theme looks which of its templates are empty."""
    app.connect("config-inited", add_own_files)
    app.connect("env-updated", with_other_twins)
    app.connect("write-started", write_data)
    app.connect("html-page-context", add_to_page, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
