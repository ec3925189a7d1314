"""Sphinx extension: when and on what a chapter was executed.

The facts are written when a chapter is executed, beside its outputs in the cache. So every language
shows the same, a build that executes nothing keeps them, and they go when the outputs go. They
differ between machines; therefore the notebooks, which must not, lack them, except where a machine
may have no kernel to execute a chapter itself.
"""

import json
import os
import platform
from datetime import UTC
from pathlib import Path

from jupyter_cache import get_cache
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from book.execution import mxnet_kernel
from book.execution.chapters import notebook
from book.execution.environment import SOURCE
from book.extensions import PARALLEL_SAFE


def facts_file(cache: str, hashkey: str) -> Path:
    """Where the facts about one execution are: in the folder of its outputs."""
    return Path(cache, "executed", hashkey, "provenance.json")


def machine_facts(kernel: str) -> dict[str, str]:
    """What the chapters of a kernel run on here and now."""
    ours = {"data": os.environ[SOURCE], "threads": os.environ["OMP_NUM_THREADS"]}
    if kernel == mxnet_kernel.KERNEL:
        return mxnet_kernel.facts() | ours
    import torch  # only when something was executed: it takes seconds

    from d2l_mgpu.devices import describe, get_devices

    count = torch.accelerator.device_count() if torch.accelerator.is_available() else 1
    return {
        "framework": f"PyTorch {torch.__version__}",
        "python": platform.python_version(),
        "devices": describe(get_devices(count, quiet=True)),
        **ours,
    }


def record(app: Sphinx, env: BuildEnvironment) -> None:
    """Write the facts about what was executed."""
    cache = get_cache(app.config.nb_execution_cache_path)
    facts: dict[str, dict[str, str]] = {}
    for entry in cache.list_cache_records():
        path = facts_file(app.config.nb_execution_cache_path, entry.hashkey)
        if path.exists():  # an interrupted build may have left some without
            continue
        kernel = cache.get_cache_bundle(entry.pk).nb.metadata.kernelspec.name
        facts[kernel] = facts.get(kernel) or machine_facts(kernel)
        time = entry.created.replace(tzinfo=UTC).isoformat(timespec="seconds")
        path.write_text(json.dumps({"time": time, **facts[kernel]}, indent=1))


def facts_of(app: Sphinx, docname: str) -> dict[str, str] | None:
    """The facts about the execution whose outputs a chapter shows; None if it shows none."""
    cache = app.config.nb_execution_cache_path
    try:
        entry = get_cache(cache).match_cache_notebook(notebook(app, docname))
    except KeyError:  # its execution failed, so that nothing was cached
        return None
    path = facts_file(cache, entry.hashkey)
    return json.loads(path.read_text()) if path.exists() else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handler."""
    app.connect("env-updated", record)
    return PARALLEL_SAFE
