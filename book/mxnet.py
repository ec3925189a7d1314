"""The environment in which the Gluon edition runs: MXNet needs older packages than the book."""

from __future__ import annotations

from pathlib import Path

from book.facts import ROOT

PYTHON = ROOT / ".venv-mxnet" / "bin" / "python"


def mxnet_python() -> Path | None:
    """The Python that has MXNet, or None where its environment has not been made."""
    return PYTHON if PYTHON.exists() else None
