"""Sphinx extension: each page with executed cells says when and on what they were executed."""

from collections.abc import Mapping
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.locale import _

from book.execution.provenance import facts_of
from book.extensions import PARALLEL_SAFE


def sentence(facts: Mapping[str, str]) -> str:
    """The facts in the language of the page."""
    data = {"generated": _("generated images"), "real": "Fashion-MNIST"}
    return _(
        "Executed on {date} with {framework} and Python {python}. Devices: {devices}. "
        "CPU threads per process: {threads}. Data: {data}."
    ).format_map(
        {**facts, "date": facts["time"][:10], "data": data.get(facts["data"], facts["data"])}
    )


def add_to_page(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Fill in what the template in the footer shows."""
    found = tree and "kernelspec" in app.env.metadata[pagename] and facts_of(app, pagename)
    context["provenance"] = sentence(found) if found else ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handler."""
    app.connect("html-page-context", add_to_page)
    return PARALLEL_SAFE
