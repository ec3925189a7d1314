"""Chapters are executed side by side, but those that show times alone."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from book.execution import environment
from tests.support.tiny_book import copy_tiny_book, edit, executed, run_book

pytestmark = pytest.mark.site

# What each chapter does: it writes down when it begins and when it ends.
NOTES = """
import time
with open({log!r}, "a") as log:
    print({chapter!r}, "begins", file=log, flush=True)
    time.sleep(4)
    print({chapter!r}, "ends", file=log, flush=True)
"""


@pytest.fixture
def noting(tmp_path: Path) -> Path:
    """A tiny book whose two chapters write down, in `log`, when they are executed."""
    book = copy_tiny_book(tmp_path / "book")
    for chapter in ("first", "second"):
        path = book / f"chapters/{chapter}.md"
        notes = NOTES.format(log=str(book / "log"), chapter=chapter)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n```{{code-cell}} ipython3\n:tags: [remove-cell]{notes}```\n")
    return book


def notes(book: Path) -> list[str]:
    return (book / "log").read_text().splitlines()


def timed(book: Path, *names: str) -> None:
    for name in names:
        edit(book / f"chapters/{name}.md", "\nkernelspec:", "\ntimed: true\nkernelspec:")


@pytest.mark.skipif(environment.cores() < 2, reason="needs two cores")
def test_chapters_are_executed_side_by_side(noting: Path) -> None:
    result = run_book("html", noting, "en")
    assert executed(result.stdout) == ["first", "second"]
    assert [note.split()[1] for note in notes(noting)] == ["begins", "begins", "ends", "ends"]


@pytest.fixture
def one_core() -> Iterator[None]:
    """What this process starts finds one core."""
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})
    yield
    os.sched_setaffinity(0, usable)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_one_core_is_enough(noting: Path, one_core: None) -> None:
    assert executed(run_book("html", noting, "en").stdout) == ["first", "second"]
    assert notes(noting) == ["first begins", "first ends", "second begins", "second ends"]


def test_timed_chapters_are_executed_alone(noting: Path) -> None:
    timed(noting, "first", "second")
    result = run_book("html", noting, "en")
    assert executed(result.stdout) == ["first", "second"]
    assert notes(noting) == ["first begins", "first ends", "second begins", "second ends"]


@pytest.mark.skipif(environment.cores() < 2, reason="needs two cores")
def test_what_fails_beside_others_is_executed_again_alone(noting: Path) -> None:
    """Here the first chapter fails as long as the second one has not ended."""
    path, log = noting / "chapters/first.md", str(noting / "log")
    waits = f"import time\ntime.sleep(2)\nassert 'second ends' in open({log!r}).read()\n"
    edit(path, "```{code-cell} ipython3\nimport os", f"```{{code-cell}} ipython3\n{waits}import os")
    result = run_book("html", noting, "en")
    assert result.returncode == 0, result.stdout
    assert "chapters/first failed beside others (CellExecutionError)" in result.stdout
    assert executed(result.stdout) == ["first", "second"]
    assert notes(noting) == ["second begins", "second ends", "first begins", "first ends"]
