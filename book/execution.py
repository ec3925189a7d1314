"""Sphinx extension: execute every chapter once, remember it, and say what was executed.

The outputs live in a jupyter-cache. Its own key is a chapter's code; what the code imports and
the data it reads are added here, as a part of the folder's name.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jupyter_cache import get_cache
from myst_nb.core.read import create_nb_reader
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util import logging

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


def fingerprint(root: Path) -> str:
    """Twelve hexadecimal digits that change with the package's code or the requirements."""
    digest = hashlib.sha256()
    for path in [*sorted(root.glob("d2l_mgpu/**/*.py")), *sorted(root.glob("requirements*.txt"))]:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def choose_cache(app: Sphinx, config: Config) -> None:
    """Name the cache after what the outputs depend on; stop early when d2l is missing."""
    if message := missing_d2l():
        raise ExtensionError(message)
    root = Path(app.srcdir)
    folder = f"{pin_environment()}-{fingerprint(root)}"
    config["nb_execution_cache_path"] = str(root / "_build" / ".jupyter_cache" / folder)


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
    reader = create_nb_reader(path, app.env.myst_config, app.env.mystnb_config, text)  # type: ignore[attr-defined]
    return reader.read(text)


def executed(app: Sphinx) -> list[Any]:
    """The cache's records of what this build has executed."""
    records = get_cache(app.config.nb_execution_cache_path).list_cache_records()
    # Their times are UTC, but do not say so.
    new = [r for r in records if r.created.replace(tzinfo=UTC) >= app.started]  # type: ignore[attr-defined]
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
    app.connect("env-get-outdated", execute_failed_again)
    app.connect("build-finished", report)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
