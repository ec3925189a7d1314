"""What executes when, and what a failing build says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from book.languages import TRANSLATIONS
from tests.support import ROOT
from tests.support.tiny_book import copy_tiny_book, edit, executed, run_book

pytestmark = pytest.mark.site

WITHOUT_D2L = """
import importlib.util, runpy, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "d2l" else find(name, *rest)
sys.argv = ["site", "html", {folder!r}]
runpy.run_module("book.site", run_name="__main__")
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny book that the tests below, in their order, build and edit."""
    return copy_tiny_book(tmp_path_factory.mktemp("editable") / "book")


def build(book: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build the English pages, which is where things are executed."""
    return run_book("html", book, "en", **environment)


def test_the_first_build_executes_each_chapter_once(book: Path) -> None:
    result = build(book, TZ="Asia/Kolkata")
    assert result.returncode == 0, result.stdout
    assert executed(result.stdout) == ["first", "second"]
    assert "2 chapters executed" in result.stdout


def test_editing_prose_executes_nothing(book: Path) -> None:
    edit(book / "chapters" / "first.md", "A second paragraph.", "Another paragraph.")
    assert "0 chapters executed" in build(book, TZ="America/New_York").stdout
    assert "Another paragraph." in (book / "_build/html/chapters/first.html").read_text()


def test_editing_the_code_of_a_chapter_executes_that_chapter(book: Path) -> None:
    edit(book / "chapters" / "second.md", "accuracy 0.912", "accuracy 0.913")
    assert executed(build(book).stdout) == ["second"]


def test_editing_a_module_executes_the_chapters_that_import_it(book: Path) -> None:
    """What they import is found in tests/book/test_dependencies.py; here it reaches the outputs."""
    for module in ("__init__", "history", "traffic"):
        (book / f"d2l_mgpu/{module}.py").parent.mkdir(exist_ok=True)
        (book / f"d2l_mgpu/{module}.py").touch()
    edit(book / "chapters" / "second.md", "answer = 42", "import d2l_mgpu.history\nanswer = 42")
    assert executed(build(book).stdout) == ["second"]
    (book / "d2l_mgpu/history.py").write_text("changed = True\n")
    assert executed(build(book).stdout) == ["second"]
    (book / "d2l_mgpu/traffic.py").write_text("changed = True\n")
    assert executed(build(book).stdout) == []
    (book / "d2l_mgpu/history.py").write_text("")  # as before: its outputs are still known
    assert executed(build(book).stdout) == []


def test_another_data_source_has_its_own_outputs(book: Path) -> None:
    result = build(book, D2L_MGPU_SOURCE="real")
    assert executed(result.stdout) == ["first", "second"]
    assert "data: real" in (book / "_build/html/chapters/first.html").read_text()


def test_a_failing_cell_fails_every_build_until_it_is_mended(book: Path) -> None:
    edit(book / "chapters" / "second.md", "answer = 42", "answer = 1 / 0")
    for _ in range(2):
        result = build(book)
        assert result.returncode == 1
        assert "division by zero" in result.stdout
    edit(book / "chapters" / "second.md", "answer = 1 / 0", "answer = 42")
    assert build(book).returncode == 0


def test_a_warning_fails_every_build_until_it_is_mended(book: Path) -> None:
    edit(book / "chapters" / "first.md", "{ref}`numbers`", "{ref}`nowhere`")
    for _ in range(2):
        result = build(book)
        assert result.returncode == 1
        assert "undefined label: 'nowhere'" in result.stdout


def test_a_missing_d2l_is_said_in_one_line_with_the_command(tmp_path: Path) -> None:
    folder = copy_tiny_book(tmp_path / "book")
    command = [sys.executable, "-c", WITHOUT_D2L.format(folder=str(folder))]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1
    assert re.search(r"^.*pip install --no-deps d2l==\S+$", result.stderr, re.MULTILINE)
    assert "Traceback" not in result.stderr


def test_jupyter_book_alone_builds_the_same_site(tmp_path: Path, tiny_book: Path) -> None:
    folder = copy_tiny_book(tmp_path / "book")
    command = [Path(sys.executable).with_name("jupyter-book"), "build", "."]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    made = {p.relative_to(folder) for p in folder.glob("_build/html/**/*.html")}
    pages = {p.relative_to(tiny_book) for p in tiny_book.glob("_build/html/**/*.html")}
    others = {spoken.folder for spoken in TRANSLATIONS}
    assert made == {page for page in pages if page.parts[2] not in others}


def test_the_root_of_the_site_leads_to_the_first_page(tiny_book: Path) -> None:
    page = (tiny_book / "_build/html/index.html").read_text()
    assert 'content="0; url=chapters/index.html"' in page
    assert (tiny_book / "_build/html/chapters/index.html").exists()
