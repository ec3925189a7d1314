"""Sphinx extension: a build says what it executed, and fails if a cell failed."""

import os
from datetime import UTC, datetime
from typing import Any

from jupyter_cache import get_cache
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

from book.execution.chapters import failed
from book.execution.environment import SOURCE
from book.extensions import PARALLEL_SAFE

logger = logging.getLogger(__name__)


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
    """Connect the handler, and note when the build began."""
    app.started = datetime.now(UTC)  # type: ignore[attr-defined]
    app.connect("build-finished", report)
    return PARALLEL_SAFE
