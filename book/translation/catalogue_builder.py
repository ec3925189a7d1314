"""Sphinx builder that brings the catalogues up to the English: `make locales`."""

from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.util.nodes import extract_messages

from book.config import pytorch_twin
from book.languages import TRANSLATIONS
from book.translation import catalogues, figures, interface
from book.translation.catalogues import Source
from book.translation.merge import merged

NOTES: dict[type[nodes.Node], str] = {
    nodes.title: "title",
    nodes.caption: "caption",
    nodes.image: "what a figure shows, for who cannot see it",
    nodes.entry: "table cell",
    addnodes.toctree: "title of a part of the book",
}


def note(node: nodes.Node) -> str:
    """What a piece of text is, for its translator."""
    for kind, words in NOTES.items():
        if isinstance(node, kind) or isinstance(node.parent, kind):
            return words
    return "text"


def translatable(doctree: nodes.document) -> Iterator[tuple[nodes.Element, str]]:
    """The pieces of a page to translate: not its formulas, its code or the docstrings it shows."""
    for node, text in extract_messages(doctree):
        from_page = not node.source or Path(node.source).suffix == ".md"
        if text and from_page and not isinstance(node, nodes.math_block | nodes.raw):
            yield node, text


def plots(doctree: nodes.document) -> Iterator[str]:
    """What the plots of a page show; the plots themselves are not there, as nothing is executed."""
    for cell in doctree.findall(nodes.container):
        image = cell.get("cell_metadata", {}).get("mystnb", {}).get("image", {})
        if "alt" in image:
            yield image["alt"]


class CatalogueBuilder(Builder):
    """Merges the English text of every page, of the figures and of the interface."""

    name = "catalogues"
    epilog = "The catalogues are in locales/."
    use_message_catalog = False

    def init(self) -> None:
        self.sources: dict[str, list[Source]] = {}

    def get_outdated_docs(self) -> set[str]:
        return self.env.found_docs

    def get_target_uri(self, docname: str, typ: str | None = None) -> str:
        return docname

    def prepare_writing(self, docnames: set[str]) -> None:
        pass

    def write_doc(self, docname: str, doctree: nodes.document) -> None:
        texts = translatable(self.env.get_doctree(docname))
        self.sources[docname] = [
            *(Source(text, note(node)) for node, text in texts),
            *(Source(text, note(nodes.image())) for text in plots(doctree)),
        ]

    def own(self, name: str) -> list[Source]:
        """The text of a page that is not in the catalogue of its PyTorch edition."""
        twin = self.sources.get(pytorch_twin(name) or "", [])
        shared = {source.text for source in twin}
        return [source for source in self.sources[name] if source.text not in shared]

    def finish(self) -> None:
        root = Path(self.srcdir)
        self.sources["figures"] = figures.sources(root / "chapters" / "img")
        self.sources["interface"] = interface.sources()
        for language in TRANSLATIONS:
            folder = catalogues.folder(root, language)
            known = [m for path in folder.glob("**/*.po") for m in catalogues.read(path, language)]
            for name in self.sources:
                path, sources = folder / f"{name}.po", self.own(name)
                new = merged(catalogues.read(path, language), sources, known)
                catalogues.write(path, new)
            catalogues.remove_others(folder, self.sources)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the builder."""
    app.add_builder(CatalogueBuilder)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
