"""Sphinx extension: every chapter is executed once, and again when what it depends on has changed.

The outputs live in a jupyter-cache, one for each source of data. Its own key is a chapter's code;
what the code imports is added here, as a digest in the chapter's front matter.
"""

import copy
from pathlib import Path
from typing import Any

from jupyter_cache.base import JupyterCacheAbstract
from myst_nb.core.read import create_nb_reader
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError

from book.execution.dependencies import DEPENDS, Dependencies
from book.execution.environment import missing_d2l, pin_environment
from book.extensions import PARALLEL_SAFE


def in_cache(cache: JupyterCacheAbstract, chapter: Any) -> bool:
    """Whether a chapter was executed here before, or its outputs were restored."""
    try:
        return cache.match_cache_notebook(chapter) is not None
    except KeyError:
        return False


def choose_cache(app: Sphinx, config: Config) -> None:
    """Name the cache after the data; stop early when d2l is missing."""
    if message := missing_d2l():
        raise ExtensionError(message)
    root = Path(app.srcdir)
    app.dependencies = Dependencies(root)  # type: ignore[attr-defined]
    app.parsed_chapters = {}  # type: ignore[attr-defined]
    config["nb_execution_cache_path"] = str(root / "_build" / ".jupyter_cache" / pin_environment())


def keep_figures_apart(app: Sphinx) -> None:
    """Put what MyST-NB writes for itself beside the doctrees: not into the site, and not into a
    folder that languages share which are built at the same time."""
    folder = str(Path(app.doctreedir, "outputs"))
    app.env.mystnb_config = app.env.mystnb_config.copy(output_folder=folder)  # type: ignore[attr-defined]


def mark(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let MyST-NB read the digest of what the chapter depends on."""
    source[0] = app.dependencies.marked(docname, source[0])  # type: ignore[attr-defined]


def changed(app: Sphinx, env: BuildEnvironment, *_: set[str]) -> list[str]:
    """The chapters whose outputs, when they were read, depended on something else than today."""
    return [
        docname
        for docname in sorted(env.all_docs.keys() & env.found_docs)
        if (spec := env.metadata[docname].get("kernelspec"))
        and spec.get(DEPENDS) != notebook(app, docname).metadata.kernelspec.get(DEPENDS)
    ]


def failed(env: BuildEnvironment) -> list[str]:
    """The documents whose last execution failed."""
    executions = {name: data.get("exec_data") for name, data in env.nb_metadata.items()}  # type: ignore[attr-defined]
    return sorted(name for name, data in executions.items() if data and not data["succeeded"])


def execute_failed_again(app: Sphinx, env: BuildEnvironment, *_: set[str]) -> list[str]:
    """A failed execution is not cached: without this, the next build would not notice it."""
    return failed(env) if hasattr(env, "nb_metadata") else []


def has_code(app: Sphinx, docname: str) -> bool:
    """Whether a page is a notebook, which its front matter says."""
    return "\nkernelspec:" in Path(app.env.doc2path(docname)).read_text(encoding="utf-8")


def notebook(app: Sphinx, docname: str) -> Any:
    """A chapter as the cache knows it: its cells, without outputs. The caller may change it.

    A build asks several times for each chapter, and parses it once.
    """
    path = app.env.doc2path(docname)
    text = Path(path).read_text(encoding="utf-8")
    text = app.dependencies.marked(docname, text)  # type: ignore[attr-defined]
    known: dict[tuple[str, str], Any] = app.parsed_chapters  # type: ignore[attr-defined]
    if (docname, text) not in known:
        reader = create_nb_reader(path, app.env.myst_config, app.env.mystnb_config, text)  # type: ignore[attr-defined]
        known[docname, text] = reader.read(text)
    return copy.deepcopy(known[docname, text])


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handlers."""
    app.connect("config-inited", choose_cache)
    app.connect("builder-inited", keep_figures_apart, priority=600)  # after MyST-NB
    app.connect("source-read", mark)
    app.connect("env-get-outdated", changed)
    app.connect("env-get-outdated", execute_failed_again)
    return PARALLEL_SAFE
