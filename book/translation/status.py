"""Sphinx directive `{translation-status}`: page x language, counted from the catalogues."""

from collections import Counter
from pathlib import Path

from docutils import nodes
from polib import POFile
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.locale import _
from sphinx.util.docutils import SphinxDirective

from book.extensions import PARALLEL_SAFE
from book.languages import TRANSLATIONS, Language
from book.translation import catalogues
from book.translation.checks import content


def columns() -> list[str]:
    """The head of the table."""
    return [_("Page"), _("Translated"), _("Stale"), _("Missing"), _("Words"), _("Last change")]


def counts(catalogue: POFile) -> list[str]:
    """How many messages are translated, stale and missing, the English words, and the date."""
    messages = catalogues.messages(catalogue)
    states = Counter(catalogues.state(message) for message in messages)
    words = sum(len(content(message.msgid).words.split()) for message in messages)
    numbers = [states["translated"], states["stale"], states["missing"], words]
    return [*map(str, numbers), catalogue.metadata["PO-Revision-Date"][:10]]


class TranslationStatus(SphinxDirective):
    """A table for each language."""

    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for language in TRANSLATIONS:
            found += [nodes.rubric("", language.name, translatable=False), self.table(language)]
        return found

    def table(self, language: Language) -> nodes.table:
        """The catalogues of one language, the pages in their order."""
        folder = catalogues.folder(Path(self.env.srcdir), language)
        pages = list(self.config.external_site_map)
        labels = {"figures": _("Figures"), "interface": _("Interface")}
        rows = [row(columns())]
        for name in [*pages, *labels]:
            path = folder / f"{name}.po"
            self.env.note_dependency(str(path))
            label = self.page(name) if name in pages else nodes.Text(labels[name])
            rows.append(row([label, *counts(catalogues.read(path, language))]))
        group = nodes.tgroup(cols=len(rows[0]))
        group += [nodes.colspec(colwidth=1) for cell in rows[0]]
        group += [nodes.thead("", rows[0]), nodes.tbody("", *rows[1:])]
        return nodes.table("", group, classes=["translation-status"])

    def page(self, docname: str) -> nodes.Node:
        """A link to a page that shows its title."""
        return addnodes.pending_xref(
            "",
            nodes.inline(),
            refdomain="std",
            reftype="doc",
            reftarget=f"/{docname}",
            refdoc=self.env.docname,
            refexplicit=False,
            refwarn=True,
        )


def row(cells: list[nodes.Node | str]) -> nodes.row:
    """A row of the table; the numbers are set to the right."""
    entries = []
    for i, cell in enumerate(cells):
        inline = nodes.Text(cell) if isinstance(cell, str) else cell
        classes = ["text-right"] if 0 < i < len(cells) - 1 else []
        entries.append(nodes.entry("", nodes.paragraph("", "", inline), classes=classes))
    return nodes.row("", *entries)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("translation-status", TranslationStatus)
    return PARALLEL_SAFE
