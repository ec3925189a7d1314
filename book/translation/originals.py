"""Sphinx extension: the English beside a translation, and marks on what is stale or missing.

Before Sphinx puts a translation into a paragraph, the English is kept; afterwards it is set behind
the paragraph, for readers who switch it on, or, where the translation is stale, who ask for it.
"""

import html
import pickle
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.locale import _
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

from book.config import pytorch_twin
from book.extensions import PARALLEL_SAFE
from book.languages import ENGLISH, language
from book.translation import catalogues
from book.translation.catalogue_builder import translatable
from book.translation.catalogues import LOCALES, Source, State
from book.translation.interface import NUMBERS
from book.translation.merge import merged

logger = logging.getLogger(__name__)

# What may stand behind a block. Elsewhere (in the title of a table) the English goes inside it.
SIBLINGS = nodes.paragraph | nodes.title | nodes.caption | nodes.rubric


class Original(nodes.comment):
    """The English of a translated piece: `state` is translated, stale or missing.

    As a comment it counts for no one but who asks: neither for the search nor in titles.
    """

    def astext(self) -> str:
        return ""


class KeepEnglish(SphinxTransform):
    """Remember each piece of English, and give Sphinx the page's translations.

    The catalogue is merged with the page as it is now, so that a paragraph shows as stale as soon
    as its English has changed.
    """

    default_priority = 15  # Sphinx translates at 20

    def apply(self, **_: object) -> None:
        spoken = language(self.config.language)
        if spoken is ENGLISH or not self.app.builder.use_message_catalog:
            return
        root, name = Path(self.app.srcdir), self.env.docname
        folder = catalogues.folder(root, spoken)
        paths = [folder / f"{page}.po" for page in (name, pytorch_twin(name)) if page]
        for path in paths:
            self.env.note_dependency(str(path))
        own, *shared = [catalogues.read(path, spoken) for path in paths]
        texts = list(translatable(self.document))
        catalogue = merged(own, [Source(text, "") for _, text in texts], shared=shared)
        compiled = root / LOCALES / spoken.code / "LC_MESSAGES" / f"{name}.mo"
        compiled.parent.mkdir(parents=True, exist_ok=True)
        catalogues.for_sphinx(catalogue).save_as_mofile(str(compiled))
        found = {message.msgid: message for message in catalogues.messages(catalogue)}
        self.document["english"] = [
            (node, found[text], node.deepcopy())
            for node, text in texts
            if not isinstance(node, nodes.image | addnodes.toctree)
        ]


class ShowEnglish(SphinxTransform):
    """Put the English behind its translation; mark what is stale or missing."""

    default_priority = 21

    def apply(self, **_: object) -> None:
        if language(self.config.language) is not ENGLISH:
            for description in self.document.findall(addnodes.desc):  # docstrings stay English
                description["classes"].append("language-en")
        for node, message, english in self.document.attributes.pop("english", []):
            state = catalogues.state(message)
            unchanged = english.astext() == node.astext()
            if state == "missing":
                node["classes"] += ["missing", "language-en"]
            elif state == "stale" or not unchanged:
                self.show(node, state, english)
            elif message.msgstr != message.msgid:
                logger.warning(f"Not one paragraph: {message.msgstr!r}", location=node)

    def show(self, node: nodes.Element, state: State, english: nodes.Element) -> None:
        """Insert the English of one piece."""
        for copy in english.findall(nodes.Element):
            copy["ids"] = []
        for reference in english.findall(addnodes.pending_xref):
            self.name_in_english(reference)
        original = Original("", "", *english.children, state=state)
        inside = isinstance(node.parent, nodes.table) or "design_component" in node.parent
        if isinstance(node, SIBLINGS) and not inside:
            node.parent.insert(node.parent.index(node) + 1, original)
        else:
            original["inside"] = True
            node.append(original)
        if state == "stale":
            node["classes"].append("stale")

    def name_in_english(self, reference: addnodes.pending_xref) -> None:
        """Let a reference show the English title or number; by itself it would speak the page's."""
        english = english_environment(Path(self.env.doctreedir).parent / ENGLISH.folder)
        if english is None or reference["refdomain"] != "std" or reference["refexplicit"]:
            return
        label = reference["reftarget"]
        page, anchor, title = english.domaindata["std"]["labels"].get(label, ("", "", ""))
        text = title if reference["reftype"] == "ref" else ""
        if reference["reftype"] == "numref":
            kinds = english.toc_fignumbers.get(page, {}).items()
            text = next((NUMBERS[kind] for kind, ids in kinds if anchor in ids), "")
        if text:
            reference["refexplicit"] = True
            reference.children = [nodes.inline("", text)]


@cache
def english_environment(doctrees: Path) -> BuildEnvironment | None:
    """What Sphinx knows of the English pages, which are built first; None if they were not."""
    path = doctrees / "environment.pickle"
    return pickle.loads(path.read_bytes()) if path.exists() else None


def visit_original(writer: HTML5Translator, node: Original) -> None:
    """Open the box of an English original, folded where it is there because of a stale text."""
    if node["state"] == "stale":
        hint = html.escape(_("The English has changed since this was translated"))
        writer.body.append(
            f'<details class="original stale-original"><summary>{hint}</summary><div lang="en">'
        )
    else:
        tag = "span" if "inside" in node else "div"
        writer.body.append(f'<{tag} class="original" lang="en">')


def depart_original(writer: HTML5Translator, node: Original) -> None:
    """Close the box."""
    tag = "span" if "inside" in node else "div"
    writer.body.append("</div></details>" if node["state"] == "stale" else f"</{tag}>")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the node and the transforms."""
    app.add_node(Original, html=(visit_original, depart_original))
    app.add_transform(KeepEnglish)
    app.add_transform(ShowEnglish)
    return PARALLEL_SAFE
