"""Sphinx extension: where a chapter's kernel is missing, show what its committed notebook holds.

The outputs go into the cache together with the facts about their execution, as if the chapter had
been executed at that time. A chapter whose code has changed since shows none: they would not be
those of its code.
"""

import json
from pathlib import Path
from typing import Any

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

from book.config import notebook_path
from book.execution.chapters import has_code, in_cache, notebook
from book.execution.environment import has_kernel
from book.execution.provenance import facts_file
from book.extensions import PARALLEL_SAFE
from book.languages import ENGLISH, language

SAVED = "saved"  # marks a record of the cache whose outputs were not made by a build here
logger = logging.getLogger(__name__)


def code_cells(cells: list[Any]) -> list[Any]:
    return [cell for cell in cells if cell.cell_type == "code"]


def restored(chapter: Any, path: Path) -> Any | None:
    """The notebook at `path`; its outputs are put into `chapter` if both have the same code."""
    if not path.exists():
        return None
    saved = nbformat.read(path, as_version=4)
    if not saved.metadata.get("d2l_mgpu", {}).get("executed"):
        return None  # nobody knows when
    ours, theirs = code_cells(chapter.cells), code_cells(saved.cells)[1:]  # the first one installs
    if [cell.source for cell in ours] != [cell.source for cell in theirs]:
        return None
    for cell, executed in zip(ours, theirs, strict=True):
        cell.outputs, cell.execution_count = executed.outputs, executed.execution_count
    return saved


def use_saved_outputs(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Fill the cache for the chapters that cannot be executed; say so in a line for each, once,
    with the English pages, which are built first."""
    if app.config.nb_execution_mode == "off":
        return
    cache = get_cache(app.config.nb_execution_cache_path)
    say = logger.info if language(app.config.language) is ENGLISH else logger.debug
    for docname in docnames:
        if not has_code(app, docname):
            continue
        chapter = notebook(app, docname)
        spec = chapter.metadata.kernelspec
        if has_kernel(spec.name) or in_cache(cache, chapter):
            continue
        missing = f"{docname}: no kernel for {spec.display_name} on this machine, so"
        saved = restored(chapter, Path(app.srcdir, notebook_path(docname)))
        if saved is None:
            say(f"{missing} no outputs are shown: no committed notebook holds those of this code")
            without_outputs(env)[docname] = spec.name
            settings = env.mystnb_config  # type: ignore[attr-defined]
            excluded = [*settings.execution_excludepatterns, f"{docname}.md"]
            settings.execution_excludepatterns = excluded
            continue
        facts = saved.metadata.d2l_mgpu.executed
        say(f"{missing} the outputs of {facts['time'][:10]} are shown")
        bundle = CacheBundleIn(chapter, env.doc2path(docname), data={SAVED: facts["time"]})
        record = cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
        path = facts_file(app.config.nb_execution_cache_path, record.hashkey)
        path.write_text(json.dumps(facts, indent=1))


def without_outputs(env: BuildEnvironment) -> dict[str, str]:
    """The chapters of which there are no outputs, and the kernels that they wait for."""
    vars(env).setdefault("without_outputs", {})
    return env.without_outputs  # type: ignore[attr-defined]


def outdated(app: Sphinx, env: BuildEnvironment, *_: set[str]) -> list[str]:
    """The chapters with saved outputs, or none, that can be executed by now."""
    cache = get_cache(app.config.nb_execution_cache_path)
    waiting = without_outputs(env)
    found = [docname for docname, kernel in waiting.items() if has_kernel(kernel)]
    for docname in found:
        del waiting[docname]
    for record in cache.list_cache_records():
        if SAVED in record.data:
            name = cache.get_cache_bundle(record.pk).nb.metadata.kernelspec.name
            if has_kernel(name):
                cache.remove_cache(record.pk)
                found.append(env.path2doc(record.uri) or "")
    return [docname for docname in found if docname in env.found_docs]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handlers."""
    app.connect("env-get-outdated", outdated)
    app.connect("env-before-read-docs", use_saved_outputs)
    return PARALLEL_SAFE
