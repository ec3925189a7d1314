"""Without its kernel, a chapter shows the outputs of its committed notebook, with their date."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup

from book import mxnet
from book.saved_outputs import has_kernel
from tests.conftest import ROOT, copy_tiny_book, run_book
from tests.test_book import edit, executed

FACTS = {
    "time": "2001-02-03T04:05:06+00:00",
    "framework": "Absent 1.0",
    "python": "3.11.1",
    "devices": "cpu(0)",
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


def build_english(book: Path) -> str:
    command = [sys.executable, "-m", "book.site", "html", str(book), "en"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def page(book: Path, name: str = "second") -> BeautifulSoup:
    text = (book / f"_build/html/chapters/{name}.html").read_text(encoding="utf-8")
    return BeautifulSoup(text, "html.parser")


def test_it_shows_the_saved_outputs_and_says_when_they_were_made(book: Path) -> None:
    result = run_book("html", book)
    assert result.returncode == 0, result.stdout
    assert executed(result.stdout) == ["first"]
    said = "chapters/second: no kernel for Absent on this machine, so the outputs of 2001-02-03"
    assert result.stdout.count(said) == 1
    assert SAVED in page(book).get_text()
    for folder in ("", "vi/"):
        path = book / f"_build/html/{folder}chapters/second.html"
        shown = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        assert "2001-02-03" in shown.select_one(".provenance").get_text()
        assert "Absent 1.0" in shown.select_one(".provenance").get_text()


def test_its_notebook_can_be_written_without_its_kernel(book: Path) -> None:
    result = run_book("notebooks", book)
    assert result.returncode == 0, result.stdout
    made = nbformat.read(book / "_build/notebooks/zh/second.ipynb", as_version=4)
    assert any(SAVED in str(cell.get("outputs")) for cell in made.cells)


def test_changed_code_shows_no_outputs_of_other_code(book: Path) -> None:
    edit(book / "chapters/second.md", "answer = 42", "answer = 43")
    said = build_english(book)
    assert "no outputs are shown: its code is not that of its notebook" in said
    assert not page(book).select(".cell_output") and not page(book).select(".provenance")
    assert page(book).select(".cell_input")
    edit(book / "chapters/second.md", "answer = 43", "answer = 42")


def test_it_is_executed_as_soon_as_there_is_a_kernel(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_english(book)
    assert SAVED in page(book).get_text()
    kernel = tmp_path / "kernels" / "absent"
    kernel.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Absent", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    assert has_kernel("absent")
    assert executed(build_english(book)) == ["second"]
    assert SAVED not in page(book).get_text()


def test_a_kernel_whose_program_is_gone_counts_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tmp_path / "kernels" / "gone"
    kernel.mkdir(parents=True)
    spec = {"argv": [str(tmp_path / "python")], "display_name": "Gone", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    assert not has_kernel("gone") and not has_kernel("never-was")


def test_where_there_is_no_python_for_mxnet_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mxnet.sys, "version_info", (3, 13, 0))
    monkeypatch.setenv("PATH", "")
    mxnet.main()
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "Python 3.11" in said


def test_where_mxnet_cannot_be_installed_one_line_says_so_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("mxnet==0.0.0\n")
    monkeypatch.setattr(mxnet, "find_python", lambda: sys.executable)
    monkeypatch.setattr(mxnet, "REQUIREMENTS", requirements)
    monkeypatch.setattr(mxnet, "FOLDER", tmp_path / "environment")
    monkeypatch.setattr(mxnet, "PYTHON", tmp_path / "environment/bin/python")
    mxnet.main()
    said = capsys.readouterr().out
    assert said.count("\n") == 2 and "No matching distribution found for mxnet==0.0.0" in said
    assert not (tmp_path / "environment").exists()
