"""Sphinx extension: each page with executed cells says when and on what they were executed.

The facts are written when a chapter is executed, beside its outputs in the cache. So every language
shows the same, a build that executes nothing keeps them, and they go when the outputs go. They
differ between machines; therefore the notebooks, which must not, lack them, except where a machine
may have no kernel to execute a chapter itself.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path
from typing import Any

from docutils import nodes
from jupyter_cache import get_cache
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.locale import _

from book import mxnet
from book.execution import SOURCE, notebook


def facts_file(cache: str, hashkey: str) -> Path:
    """Where the facts about one execution are: in the folder of its outputs."""
    return Path(cache, "executed", hashkey, "provenance.json")


def environment(kernel: str) -> dict[str, str]:
    """What the chapters of a kernel run on here and now."""
    ours = {"data": os.environ[SOURCE], "threads": os.environ["OMP_NUM_THREADS"]}
    if kernel == mxnet.KERNEL:
        return mxnet.facts() | ours
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
        facts[kernel] = facts.get(kernel) or environment(kernel)
        time = entry.created.replace(tzinfo=UTC).isoformat(timespec="seconds")
        path.write_text(json.dumps({"time": time, **facts[kernel]}, indent=1))


def provenance(app: Sphinx, docname: str) -> dict[str, str] | None:
    """The facts about the execution whose outputs a chapter shows; None if it shows none."""
    cache = app.config.nb_execution_cache_path
    try:
        entry = get_cache(cache).match_cache_notebook(notebook(app, docname))
    except KeyError:  # its execution failed, so that nothing was cached
        return None
    path = facts_file(cache, entry.hashkey)
    return json.loads(path.read_text()) if path.exists() else None


def sentence(facts: Mapping[str, str]) -> str:
    """The facts in the language of the page."""
    data = {"generated": _("generated images"), "real": "Fashion-MNIST"}
    return _(
        "Executed on {date} with {framework} and Python {python}. Devices: {devices}. "
        "CPU threads per process: {threads}. Data: {data}."
    ).format_map(
        {**facts, "date": facts["time"][:10], "data": data.get(facts["data"], facts["data"])}
    )


def add_to_page(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Fill in what the template in the footer shows."""
    found = tree and "kernelspec" in app.env.metadata[pagename] and provenance(app, pagename)
    context["provenance"] = sentence(found) if found else ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handlers."""
    app.connect("env-updated", record)
    app.connect("html-page-context", add_to_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
