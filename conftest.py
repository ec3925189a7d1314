"""What every pytest run here needs: d2l, a pinned data source, and nbval's settings."""

from pathlib import Path

import pytest

from book.config import ROOT
from book.execution import mxnet_kernel
from book.execution.environment import has_kernel, missing_d2l, pin_environment
from book.languages import LANGUAGES


def first_pages() -> list[Path]:
    """Where the built site starts in each language."""
    return [ROOT / "_build" / "html" / each.path / "chapters/index.html" for each in LANGUAGES]


def pytest_configure(config: pytest.Config) -> None:
    """Stop with one line if something is missing; let a bare `pytest --nbval` check notebooks."""
    if message := missing_d2l():
        raise pytest.UsageError(message)
    if config.option.markexpr == "site" and not all(map(Path.is_file, first_pages())):
        raise pytest.UsageError("no built site: type make book")
    pin_environment("generated")
    config.option.nbval_sanitize_with = str(ROOT / "tests" / "sanitize.cfg")
    if config.option.nbval and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        config.args = [str(ROOT / "notebooks")]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Notebooks of the Gluon edition need its kernel."""
    gluon = collection_path.suffix == ".ipynb" and collection_path.parent.name == "gluon"
    return True if gluon and not has_kernel(mxnet_kernel.KERNEL) else None


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what was left out."""
    if config.option.nbval and not has_kernel(mxnet_kernel.KERNEL):
        terminalreporter.write_line(
            "No kernel for MXNet here: the notebooks in gluon/ are left out."
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before nbval starts a kernel: pin the data source that the notebook records."""
    notebook = getattr(item.parent, "nb", None)
    if notebook is not None:
        pin_environment(notebook.metadata["d2l_mgpu"]["data"])
