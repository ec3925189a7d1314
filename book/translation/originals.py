"""Sphinx extension: the English beside a translation, and marks on what is stale or missing.

Before Sphinx puts a translation into a paragraph, the English is kept; afterwards it is set behind
the paragraph, for readers who switch it on, or, where the translation is stale, who ask for it.
"""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.locale import _
from sphinx.transforms import SphinxTransform
from sphinx.writers.html5 import HTML5Translator

from book.translation import catalogues
from book.translation.catalogue_builder import translatable
from book.translation.catalogues import State
from book.translation.languages import ENGLISH, language

# What may stand behind a block. Elsewhere (in the title of a table) the English goes inside it.
SIBLINGS = nodes.paragraph | nodes.title | nodes.caption | nodes.rubric


class Original(nodes.comment):
    """The English of a translated piece: `state` is translated, stale or missing.

    As a comment it counts for no one but who asks: neither for the search nor in titles.
    """

    def astext(self) -> str:
        return ""


class KeepEnglish(SphinxTransform):
    """Remember each piece of English before it is translated."""

    default_priority = 15  # Sphinx translates at 20

    def apply(self, **_: object) -> None:
        spoken = language(self.config.language)
        if spoken is ENGLISH or not self.app.builder.use_message_catalog:
            return
        folder = catalogues.folder(Path(self.app.srcdir), spoken)
        catalogue = catalogues.read(folder / f"{self.env.docname}.po", spoken)
        states = {message.msgid: catalogues.state(message) for message in catalogue}
        self.document["english"] = [
            (node, states.get(text, "missing"), node.deepcopy())
            for node, text in translatable(self.document)
            if not isinstance(node, nodes.image | addnodes.toctree)
        ]


class ShowEnglish(SphinxTransform):
    """Put the English behind its translation; mark what is stale or missing."""

    default_priority = 21

    def apply(self, **_: object) -> None:
        if language(self.config.language) is not ENGLISH:
            for description in self.document.findall(addnodes.desc):  # docstrings stay English
                description["classes"].append("language-en")
        for node, state, english in self.document.attributes.pop("english", []):
            if state == "missing":
                node["classes"] += ["missing", "language-en"]
            elif english.astext() != node.astext() or state == "stale":
                self.show(node, state, english)

    def show(self, node: nodes.Element, state: State, english: nodes.Element) -> None:
        """Insert the English of one piece."""
        for copy in english.findall(nodes.Element):
            copy["ids"] = []
        original = Original("", "", *english.children, state=state)
        in_table = isinstance(node.parent, nodes.table)
        if isinstance(node, SIBLINGS) and not in_table:
            node.parent.insert(node.parent.index(node) + 1, original)
        else:
            node.append(original)
        if state == "stale":
            node["classes"].append("stale")


def visit_original(writer: HTML5Translator, node: Original) -> None:
    """Open the box of an English original, folded where it is there because of a stale text."""
    if node["state"] == "stale":
        hint = _("The English has changed since this was translated")
        writer.body.append(
            f'<details class="original stale-original"><summary>{hint}</summary><div lang="en">'
        )
    else:
        writer.body.append('<div class="original" lang="en">')


def depart_original(writer: HTML5Translator, node: Original) -> None:
    """Close the box."""
    writer.body.append("</div></details>" if node["state"] == "stale" else "</div>")


def speak_english(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """References resolve to titles in the page's language: in an original, use the English ones."""
    spoken = language(app.config.language)
    if spoken is ENGLISH:
        return
    english = catalogues.english_texts(Path(app.srcdir), spoken)
    for original in doctree.findall(Original):
        for reference in original.findall(nodes.reference):
            for text in list(reference.findall(nodes.Text)):
                if title := english.get(str(text)):
                    text.parent.replace(text, nodes.Text(title))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the node and the transforms."""
    app.add_node(Original, html=(visit_original, depart_original))
    app.add_transform(KeepEnglish)
    app.add_transform(ShowEnglish)
    app.connect("doctree-resolved", speak_english)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
