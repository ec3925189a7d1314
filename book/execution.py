"""Sphinx extension: execute every chapter once, remember it, and say what was executed.

The outputs live in a jupyter-cache, one for each source of data. Its own key is a chapter's code;
what the code imports is added here, as a digest in the chapter's front matter.

Chapters are executed side by side, except those whose front matter says `timed: true`: they show
how long something took, and are executed alone.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn, JupyterCacheAbstract
from jupyter_cache.executors.utils import single_nb_execution
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from myst_nb.core.read import create_nb_reader
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util import logging

from book.dependencies import DEPENDS, Dependencies
from book.facts import ROOT, d2l_requirement

SOURCE = "D2L_MGPU_SOURCE"
OWN_KERNEL = "python3"  # of the environment that builds the book
logger = logging.getLogger(__name__)


def missing_d2l() -> str | None:
    """One line that says what to type when d2l is not installed; None when it is."""
    if importlib.util.find_spec("d2l"):
        return None
    return f"The chapters use d2l, which is not installed. Type: pip install {d2l_requirement()}"


def pin_environment(source: str | None = None) -> str:
    """Let kernels started from here import this checkout, compute on one core, unless the
    environment says otherwise, and read one data source; return that.

    `source` overrides the environment; without either the generated images are used.
    """
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ[SOURCE] = source or os.environ.get(SOURCE) or "generated"
    return os.environ[SOURCE]


def cores() -> int:
    """The cores that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)  # not everywhere
    return len(usable(0)) if usable else os.cpu_count() or 1


def has_kernel(name: str) -> bool:
    """Whether notebooks can be executed with a kernel here."""
    try:
        command, *_ = KernelSpecManager().get_kernel_spec(name).argv
    except NoSuchKernel:
        return False
    return shutil.which(command) is not None


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
    """A chapter as the cache knows it: its cells, without outputs."""
    path = app.env.doc2path(docname)
    text = Path(path).read_text(encoding="utf-8")
    text = app.dependencies.marked(docname, text)  # type: ignore[attr-defined]
    reader = create_nb_reader(path, app.env.myst_config, app.env.mystnb_config, text)  # type: ignore[attr-defined]
    return reader.read(text)


def execute_side_by_side(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Execute the chapters that are not timed, one on each core, before Sphinx reads them.

    What fails here is executed once more when it is read, alone, and reported as usual.
    """
    if app.config.nb_execution_mode != "cache":
        return
    cache = get_cache(app.config.nb_execution_cache_path)
    chapters = {name: notebook(app, name) for name in docnames if has_code(app, name)}
    waiting = {
        name: chapter
        for name, chapter in chapters.items()
        if not chapter.metadata.get("timed")
        and has_kernel(chapter.metadata.kernelspec.name)
        and not in_cache(cache, chapter)
    }
    if min(cores(), len(waiting)) < 2:
        return

    def execute(docname: str) -> Any:
        folder, timeout = Path(env.doc2path(docname)).parent, app.config.nb_execution_timeout
        return single_nb_execution(waiting[docname], str(folder), timeout, allow_errors=False)

    pool = ThreadPoolExecutor(cores())
    jobs = {pool.submit(execute, docname): docname for docname in waiting}
    try:
        for job in as_completed(jobs):
            docname, error = jobs[job], job.exception()
            if error or (error := job.result().err):
                kind = type(error).__name__
                logger.info(f"{docname} failed beside others ({kind}): executed again, alone")
                continue
            data = {"execution_seconds": job.result().time}
            bundle = CacheBundleIn(job.result().nb, env.doc2path(docname), data=data)
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    except KeyboardInterrupt:  # else Python waits for the threads; the kernels end with us
        os._exit(130)


def executed(app: Sphinx) -> list[Any]:
    """The cache's records of what this build has executed."""
    records = get_cache(app.config.nb_execution_cache_path).list_cache_records()
    # Their times are UTC, but do not say so.
    new = [r for r in records if r.created.replace(tzinfo=UTC) >= app.started]  # type: ignore[attr-defined]
    new.sort(key=lambda r: r.uri)
    return [r for r in new if "execution_seconds" in r.data]  # others were saved elsewhere


def report(app: Sphinx, exception: Exception | None) -> None:
    """Print what this build executed, with seconds; fail if a cell failed."""
    if exception:
        return
    records = executed(app)
    for record in records:
        seconds = record.data["execution_seconds"]
        name = (app.env.path2doc(record.uri) or record.uri).removeprefix("chapters/")
        logger.info(f"executed {name:<32}{seconds:7.1f} s")
    total = sum(record.data["execution_seconds"] for record in records)
    logger.info(f"{len(records)} chapters executed in {total:.1f} s (data: {os.environ[SOURCE]})")
    if names := failed(app.env):
        raise ExtensionError(f"A cell failed in {', '.join(names)}: see its traceback above")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handlers."""
    app.started = datetime.now(UTC)  # type: ignore[attr-defined]
    app.connect("config-inited", choose_cache)
    app.connect("builder-inited", keep_figures_apart, priority=600)  # after MyST-NB
    app.connect("source-read", mark)
    app.connect("env-get-outdated", changed)
    app.connect("env-get-outdated", execute_failed_again)
    # After book/saved_outputs.py has restored what cannot be executed.
    app.connect("env-before-read-docs", execute_side_by_side, priority=600)
    app.connect("build-finished", report)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
