"""Sphinx builder: an executed Jupyter notebook for every chapter that has code.

Prose comes from the doctree, so that references are resolved and translations apply; code and
outputs come from the execution cache. Nothing in a notebook depends on the machine that made it.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from jupyter_cache import get_cache
from nbval.plugin import coalesce_streams
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.config import Config
from sphinx.errors import ExtensionError

from book import release
from book.config import addresses, d2l_requirement
from book.execution import mxnet_kernel
from book.execution.chapters import notebook
from book.execution.dependencies import DEPENDS
from book.execution.environment import OWN_KERNEL, SOURCE
from book.execution.provenance import facts_of
from book.extensions import PARALLEL_SAFE
from book.languages import language
from book.notebooks.markdown import MarkdownWriter
from book.outputs import EXECUTIONS
from book.translation import figures

INSTALL = """\
# Colab and Studio Lab lack the book's packages; where they are installed, nothing happens here.
from importlib.util import find_spec

if not find_spec("d2l_mgpu"):
    %pip install -q 'd2l_mgpu @ git+{repository}@{tag}'
if not find_spec("d2l"):
    %pip install -q {d2l}"""
INSTALL_MXNET = """\
# Where MXNet and the book's package are installed, nothing happens here.
import sys
from importlib.util import find_spec

if not (find_spec("mxnet") and find_spec("d2l_mgpu")):
    if sys.version_info[:2] != (3, 11):
        raise ImportError(f"MXNet needs Python 3.11, but this is {{sys.version.split()[0]}}.")
    %pip install -q 'd2l_mgpu[gluon] @ git+{repository}@{tag}'"""
HIDDEN = {"hide-input", "hide-cell"}
MIME_TYPES = ("text/plain", "text/markdown", "text/html", "image/svg+xml", "image/png")


def walk(
    node: nodes.Element, writer: MarkdownWriter, level: int = 0
) -> Iterator[tuple[str, str | int]]:
    """The document in reading order: ("heading", text), ("block", text) and ("code", index)."""
    for child in node.children:
        if isinstance(child, nodes.section):
            yield from walk(child, writer, level + 1)
        elif isinstance(child, nodes.title):
            yield "heading", writer.heading(child, level)
        elif isinstance(child, nodes.container) and child.get("nb_element") == "cell_code":
            yield "code", child["cell_index"]
        else:
            yield from (("block", block) for block in writer.blocks([child]))


def code_cell(executed: Any) -> Any:
    """A code cell with its outputs and its tags, without the times at which it ran."""
    tags = executed.metadata.get("tags", [])
    metadata: dict[str, Any] = {"tags": tags} if tags else {}
    if HIDDEN & set(tags):
        metadata |= {"jupyter": {"source_hidden": True}, "cellView": "form"}
    outputs = coalesce_streams(executed.outputs)
    return nbformat.v4.new_code_cell(
        executed.source,
        metadata=metadata,
        outputs=outputs,
        execution_count=executed.execution_count,
    )


def assemble(parts: Iterator[tuple[str, str | int]], executed: list[Any]) -> list[Any]:
    """Cells from the walk: a Markdown cell ends at a heading or at a code cell.

    Code cells that a chapter hides from its page (`remove-cell`) keep their place in the order.
    """
    cells: list[Any] = []
    text: list[str] = []
    pending = [i for i, cell in enumerate(executed) if cell.cell_type == "code"]

    def flush() -> None:
        if text:
            cells.append(nbformat.v4.new_markdown_cell("\n\n".join(text)))
            text.clear()

    for kind, part in parts:
        if kind == "code":
            flush()
            while pending and pending[0] <= int(part):
                cells.append(code_cell(executed[pending.pop(0)]))
        else:
            if kind == "heading":
                flush()
            text.append(str(part))
    flush()
    return cells + [code_cell(executed[i]) for i in pending]


def identify(cells: list[Any]) -> None:
    """Name each cell after its content, so that an edit changes no other cell's id."""
    seen: dict[str, int] = {}
    for cell in cells:
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:8]
        seen[digest] = seen.get(digest, 0) + 1
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


class NotebookBuilder(Builder):
    """Writes `<chapter>.ipynb` for every document with a kernel."""

    name = "notebooks"
    format = "markdown"
    epilog = "The notebooks are in %(outdir)s."
    allow_parallel = True
    supported_remote_images = True

    def init(self) -> None:
        self.supported_image_types = ["image/svg+xml", "image/png"]
        self.where = addresses(self.app.srcdir)
        self.language = language(self.config.language)
        self.cache = get_cache(self.config.nb_execution_cache_path)
        self.tag = release.tag()

    def get_outdated_docs(self) -> list[str]:
        return sorted(name for name in self.env.all_docs if "kernelspec" in self.env.metadata[name])

    def get_target_uri(self, docname: str, typ: str | None = None) -> str:
        return self.where.page(docname, self.language)

    def get_relative_uri(self, from_: str, to: str, typ: str | None = None) -> str:
        return self.get_target_uri(to)

    def prepare_writing(self, docnames: set[str]) -> None:
        for old in Path(self.outdir).glob("**/*.ipynb"):
            old.unlink()

    def copy_assets(self) -> None:
        """Put the drawings of a translation beside its notebooks; English ones are in chapters."""
        for uri in self.env.images:
            if uri.startswith(figures.FOLDER):
                target = Path(self.outdir, "img", Path(uri).name)
                target.parent.mkdir(exist_ok=True)
                shutil.copy(Path(self.srcdir, uri), target)

    def executed(self, docname: str) -> list[Any]:
        """The cells of a chapter with the outputs that the cache holds; with none where nothing is
        to be executed."""
        chapter = notebook(self.app, docname)
        if self.config.nb_execution_mode == "off":
            return chapter.cells
        try:
            _, merged = self.cache.merge_match_into_notebook(chapter)
        except KeyError as error:
            raise ExtensionError(
                f"{docname} was not executed, so its notebook cannot be written: see above"
            ) from error
        return merged.cells

    def metadata(self, docname: str) -> dict[str, Any]:
        """What a notebook says of itself to Jupyter, to Colab and to the book."""
        spec = {**self.env.metadata[docname]["kernelspec"]}
        del spec[DEPENDS]  # which the book needs, and no reader
        ours: dict[str, Any] = {
            "data": os.environ[SOURCE],
            "language": self.language.tag,
            "version": self.tag.removeprefix("v"),
        }
        common = {"d2l_mgpu": ours, "kernelspec": spec, "language_info": {"name": "python"}}
        if spec["name"] == OWN_KERNEL:
            return {"accelerator": "GPU", "colab": {"gpuType": "T4", "provenance": []}} | common
        ours["executed"] = facts_of(self.app, docname)  # shown where this kernel is missing
        return common

    def write_doc(self, docname: str, doctree: nodes.document) -> None:
        if docname not in self.get_outdated_docs():
            return
        metadata = self.metadata(docname)
        first = INSTALL_MXNET if metadata["kernelspec"]["name"] == mxnet_kernel.KERNEL else INSTALL
        install = first.format(
            repository=self.where.repository, tag=self.tag, d2l=d2l_requirement()
        )
        parts = walk(doctree, MarkdownWriter(self.app, docname))
        cells = [nbformat.v4.new_code_cell(install), *assemble(parts, self.executed(docname))]
        identify(cells)
        made = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
        path = Path(self.outdir, docname.removeprefix("chapters/") + ".ipynb")
        path.parent.mkdir(exist_ok=True)
        path.write_text(nbformat.writes(made, indent=1) + "\n", encoding="utf-8")

    def finish(self) -> None:
        """Say of which code the outputs are and on what they were made, for book/outputs.py."""
        facts = {}
        for docname in self.get_outdated_docs():
            _, key = self.cache.create_hashed_notebook(notebook(self.app, docname))
            executed = facts_of(self.app, docname)
            facts[docname.removeprefix("chapters/")] = {"code": key, "executed": executed}
        path = Path(self.outdir, EXECUTIONS)
        path.write_text(json.dumps(facts, indent=1), encoding="utf-8")


def rank_mime_types(app: Sphinx, config: Config) -> None:
    """MyST-NB asks for a choice of output types from every builder; ours shows none of them."""
    ours = [("notebooks", mime, rank) for rank, mime in enumerate(MIME_TYPES)]
    config["nb_mime_priority_overrides"] = [*config.nb_mime_priority_overrides, *ours]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the builder."""
    app.add_builder(NotebookBuilder)
    app.connect("config-inited", rank_mime_types)
    return PARALLEL_SAFE
