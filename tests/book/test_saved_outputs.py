"""Without its kernel, a chapter shows the outputs of its committed notebook, with their date."""

import json
import sys
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup

from book.execution.environment import has_kernel
from book.execution.saved_outputs import restored
from tests.support.built_site import soup
from tests.support.tiny_book import copy_tiny_book, edit, executed, run_book

pytestmark = pytest.mark.site

FACTS = {
    "time": "2001-02-03T04:05:06+00:00",
    "framework": "Absent 1.0",
    "python": "3.11.1",
    "devices": "cpu(0)",
    "threads": "1",
    "data": "generated",
}
SAVED = "saved long ago"


@pytest.fixture(scope="module")
def book(tiny_book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny book; nothing can execute its second chapter, whose notebook is there. The tests
    below build and edit it, in their order."""
    folder = copy_tiny_book(tmp_path_factory.mktemp("absent") / "book")
    edit(folder / "chapters/second.md", "name: python3", "name: absent")
    edit(folder / "chapters/second.md", "display_name: Python 3", "display_name: Absent")
    notebook = nbformat.read(tiny_book / "_build/notebooks/en/second.ipynb", as_version=4)
    notebook.metadata.d2l_mgpu.executed = FACTS
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    outputs[0].text = f"{SAVED}\n"
    (folder / "notebooks/en").mkdir(parents=True)
    nbformat.write(notebook, folder / "notebooks/en/second.ipynb")
    return folder


def build(book: Path, language: str = "en") -> str:
    result = run_book("html", book, language)
    assert result.returncode == 0, result.stdout
    return result.stdout


def page(book: Path, language: str = "") -> BeautifulSoup:
    return soup(book / f"_build/html/{language}chapters/second.html")


def install_kernel(folder: Path, name: str, program: str) -> None:
    """Put a kernel where Jupyter looks for it if JUPYTER_PATH names the folder."""
    (folder / "kernels" / name).mkdir(parents=True)
    argv = [program, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": name, "language": "python"}
    (folder / "kernels" / name / "kernel.json").write_text(json.dumps(spec))


def test_it_shows_the_saved_outputs_and_says_when_they_were_made(book: Path) -> None:
    said = build(book) + build(book, "vi")
    assert executed(said) == ["first"]
    line = "chapters/second: no kernel for Absent on this machine, so the outputs of 2001-02-03"
    assert said.count(line) == 1
    assert SAVED in page(book).get_text()
    for language in ("", "vi/"):
        provenance = page(book, language).select_one(".provenance").get_text()
        assert "2001-02-03" in provenance and "Absent 1.0" in provenance


def test_its_notebook_can_be_written_without_its_kernel(book: Path) -> None:
    result = run_book("notebooks", book)
    assert result.returncode == 0, result.stdout
    made = nbformat.read(book / "_build/notebooks/zh/second.ipynb", as_version=4)
    assert any(SAVED in str(cell.get("outputs")) for cell in made.cells)


def test_changed_code_shows_no_outputs_of_other_code(book: Path) -> None:
    edit(book / "chapters/second.md", "answer = 42", "answer = 43")
    assert "no committed notebook holds those of this code" in build(book)
    assert not page(book).select(".cell_output") and not page(book).select(".provenance")
    assert page(book).select(".cell_input")


def test_without_a_date_there_are_no_outputs(tiny_book: Path, tmp_path: Path) -> None:
    saved = nbformat.read(tiny_book / "_build/notebooks/en/second.ipynb", as_version=4)
    chapter = nbformat.v4.new_notebook(cells=saved.cells[1:])
    nbformat.write(saved, tmp_path / "second.ipynb")
    assert restored(chapter, tmp_path / "second.ipynb") is None
    saved.metadata.d2l_mgpu.executed = FACTS
    nbformat.write(saved, tmp_path / "second.ipynb")
    assert restored(chapter, tmp_path / "second.ipynb") is not None


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel that was absent."""
    install_kernel(tmp_path, "absent", sys.executable)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))


def test_it_is_executed_as_soon_as_there_is_a_kernel(book: Path, kernel: None) -> None:
    assert has_kernel("absent")
    assert executed(build(book)) == ["second"]  # of which there were no outputs
    assert page(book).select(".cell_output")
    edit(book / "chapters/second.md", "answer = 43", "answer = 42")
    assert executed(build(book)) == ["second"]  # of which there were saved ones
    assert SAVED not in page(book).get_text()


def test_what_was_executed_here_stays_when_the_kernel_goes(book: Path) -> None:
    (book / "chapters/second.md").touch()  # so that it is read again
    assert executed(build(book)) == []
    assert page(book).select(".cell_output") and SAVED not in page(book).get_text()


def test_a_kernel_whose_program_is_gone_counts_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_kernel(tmp_path, "gone", str(tmp_path / "python"))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    assert not has_kernel("gone") and not has_kernel("never-was")
