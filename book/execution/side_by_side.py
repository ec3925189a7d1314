"""Sphinx extension: execute the chapters of a build side by side, before Sphinx reads them.

Those whose front matter says `timed: true` show how long something took, and are executed alone.
"""

import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

from book.execution.chapters import has_code, in_cache, notebook
from book.execution.environment import cores, has_kernel
from book.extensions import PARALLEL_SAFE

logger = logging.getLogger(__name__)


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


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handler; 600 is after saved_outputs.py has restored what cannot be executed."""
    app.connect("env-before-read-docs", execute_side_by_side, priority=600)
    return PARALLEL_SAFE
