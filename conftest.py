"""What every pytest run here needs: d2l, a pinned data source, and nbval's settings."""

from __future__ import annotations

import pytest

from book.execution import missing_d2l, pin_environment
from book.facts import ROOT


def pytest_configure(config: pytest.Config) -> None:
    """Stop with one line if d2l is missing; let a bare `pytest --nbval` check the notebooks."""
    if message := missing_d2l():
        raise pytest.UsageError(message)
    pin_environment("generated")
    config.option.nbval_sanitize_with = str(ROOT / "tests" / "sanitize.cfg")
    if config.option.nbval and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        config.args = [str(ROOT / "notebooks")]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before nbval starts a kernel: pin the data source that the notebook records."""
    notebook = getattr(item.parent, "nb", None)
    if notebook is not None:
        pin_environment(notebook.metadata["d2l_mgpu"]["data"])
