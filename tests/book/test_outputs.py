"""The outputs of a build are compared with the committed ones, by nbval's rules."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from nbval.plugin import IPyNbFile

from book import outputs, site
from tests.support import ROOT
from tests.support.tiny_book import copy_tiny_book, run_book


def cell(source: str, *shown: Any, tags: tuple[str, ...] = ()) -> Any:
    return new_code_cell(source, outputs=list(shown), metadata={"tags": list(tags)})


def prints(text: str) -> Any:
    return new_output("stream", name="stdout", text=text)


def shows(text: str) -> Any:
    return new_output("display_data", data={"text/plain": text})


def fails(text: str) -> Any:
    return new_output("error", ename="ValueError", evalue=text, traceback=[])


def compared(
    old: Any, new: Any, differ: set[str] | None = None, **depends: set[str]
) -> outputs.Result:
    """The result for two notebooks of one cell each, the committed one first."""
    notebooks = [new_notebook(cells=[each]) for each in (new, old)]
    return outputs.compare_chapter(*notebooks, differ or set(), depends, "chapter")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([prints("exactly 1")], [prints("exactly 2")]),
        ([shows("exactly 1")], [shows("exactly 2")]),
        ([fails("exactly 1")], [fails("exactly 2")]),
        ([prints("exactly 1")], []),
        ([prints("exactly 1")], [prints("exactly 1"), shows("exactly 2")]),
        ([prints("exactly 1")], [fails("exactly 1")]),
        ([], [shows("exactly 2")]),
    ],
    ids=[
        "printed",
        "shown",
        "an error",
        "missing",
        "additional",
        "of another kind",
        "the only one",
    ],
)
def test_a_wrong_output_is_noticed(old: list[Any], new: list[Any]) -> None:
    result = compared(cell("x", *old), cell("x", *new))
    (text,) = result.differences
    assert text.startswith("chapter, code cell 0: x")
    before, after = text.split("just built:")
    assert ("exactly" if old else "(no output)") in before
    assert ("exactly" if new else "(no output)") in after
    assert result.same == result.left_out == 0


def test_equal_outputs_are_counted() -> None:
    result = compared(cell("x", prints("1"), shows("2")), cell("x", prints("1"), shows("2")))
    assert (result.same, result.left_out, result.differences) == (1, 0, [])


def test_what_the_sanitizer_names_may_differ_and_nothing_else() -> None:
    old = cell("x", prints("accuracy 0.912, 1.25 s on 2 replicas on cpu"))
    assert not compared(old, cell("x", prints("accuracy 0.9, 3.5 s on cuda:0"))).differences
    assert compared(old, cell("x", prints("accuracy 0.9, 3.5 h on cuda:0"))).differences


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("4.4e-16", "0.0e+00", True),
        ("4.4e-16", "9.9e-10", True),
        ("4.4e-16", "1.2e-07", False),  # float32 where float64 was meant
        ("1.2e-07", "9.9e-05", True),
        ("1.2e-07", "1.2e-04", False),
        ("1.2e-07", "0.0e+00", False),  # nothing was compared
        ("1.5e-02", "1.6e-02", False),
        ("4.4e-16", "nan", False),
        ("4.4e-16", "inf", False),
    ],
)
def test_a_difference_that_is_rounding_is_compared_by_its_size(
    old: str, new: str, same: bool
) -> None:
    cells = (cell("x", prints(f"{each} from one device")) for each in (old, new))
    assert bool(compared(*cells).differences) != same


@pytest.mark.parametrize("tag", ["nbval-ignore-output", "nbval-skip"])
def test_cells_with_the_tags_of_nbval_are_left_out(tag: str) -> None:
    result = compared(cell("x", prints("1")), cell("x", prints("2"), tags=(tag,)))
    assert (result.same, result.left_out, result.differences) == (0, 1, [])


def test_an_ignored_cell_that_lost_its_tag_is_compared() -> None:
    old = cell("x", prints("1"), tags=("nbval-ignore-output",))
    assert compared(old, cell("x", prints("2"))).differences


@pytest.mark.parametrize("kind", sorted(outputs.KINDS))
def test_what_depends_on_something_is_left_out_only_where_that_is_another(kind: str) -> None:
    cells = cell("x", prints("1")), cell("x", prints("2"))
    assert compared(*cells, {kind}, x={kind}).left_out == 1
    assert compared(*cells, set(), x={kind}).differences
    assert compared(*cells, outputs.KINDS - {kind}, x={kind}).differences
    assert compared(*cells, {kind}).differences


def test_only_the_line_about_the_images_may_differ_where_they_are_others() -> None:
    line = "{}: {} training and 100 test images, {}\nexactly {}\n"
    drawn = line.format("Generated garments (not Fashion-MNIST)", 12000, "drawn", 1)
    real = line.format("FashionMNIST", 60000, "from ../data", 1)
    wrong = line.format("FashionMNIST", 60000, "from ../data", 2)
    old, new, faulty = (cell("x", prints(text)) for text in (drawn, real, wrong))
    assert not compared(old, new, {"data"}).differences
    assert compared(old, new).differences and compared(old, faulty, {"data"}).differences


@pytest.mark.parametrize(
    ("data", "devices", "differ"),
    [
        ("generated", "2 replicas on cpu", set()),
        ("generated", "cpu(0), cpu(1)", set()),
        ("generated", "cuda:0, cuda:1", {"devices"}),
        ("real", "cpu", {"data"}),
        ("real", "gpu(0)", {"data", "devices"}),
    ],
)
def test_it_knows_what_a_build_was_made_of(data: str, devices: str, differ: set[str]) -> None:
    built, committed = (
        new_notebook(metadata={"d2l_mgpu": {"data": source}}) for source in (data, "generated")
    )
    assert outputs.conditions(built, committed, {"devices": devices}) == differ


def test_the_fields_that_are_left_out_are_those_of_nbval(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    file = IPyNbFile.from_parent(request.session, path=tmp_path / "any.ipynb")
    assert set(outputs.LEFT_OUT) == set(file.skip_compare)


def test_a_row_that_nobody_understands_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    row = '[[cell]]\nchapter = "first"\nstarts = "x"\n'
    good, bad = 'reason = "it does"\n', 'reason = "it does"\ndepends_on = ["moon"]\n'
    (tmp_path / outputs.ROWS).write_text(row + good)
    assert outputs.rows(tmp_path)
    for text in (row, row + bad):
        (tmp_path / outputs.ROWS).write_text(text)
        with pytest.raises(ValueError, match="depends_on"):
            outputs.rows(tmp_path)


# A whole book


@pytest.fixture
def book(tiny_book: Path, tmp_path: Path) -> Path:
    """What a build of the tiny book and `make notebooks` leave; no pages."""
    for target in (outputs.BUILT, outputs.COMMITTED):
        shutil.copytree(tiny_book / outputs.BUILT, tmp_path / target)
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_build_as_committed_passes(book: Path) -> None:
    result = outputs.compare(book)
    assert (result.same, result.left_out, result.differences) == (5, 1, [])


def test_a_chapter_without_a_notebook_and_a_notebook_without_a_chapter_are_named(
    book: Path,
) -> None:
    (book / outputs.COMMITTED / "first.ipynb").rename(book / outputs.COMMITTED / "third.ipynb")
    missing, left = outputs.compare(book).differences
    assert "first.ipynb is missing: its chapter has no notebook yet" in missing
    assert "third.ipynb is no chapter's" in left


def test_other_code_is_named(book: Path) -> None:
    change(book / outputs.COMMITTED / "second.ipynb", "answer = 42", "answer = 43")
    (text,) = outputs.compare(book).differences
    assert "second.ipynb: the chapter has other code by now" in text


def test_a_row_is_found_by_chapter_and_first_line(book: Path) -> None:
    change(book / outputs.COMMITTED / "second.ipynb", "exactly 0.5", "exactly 0.25")
    change(book / outputs.BUILT / "second.ipynb", '"data": "generated"', '"data": "real"')
    (book / "tests").mkdir()
    row = '[[cell]]\nchapter = "{}"\nreason = "a test"\ndepends_on = ["data"]\n'
    row += "starts = 'print(\"accuracy 0.912, 1.25 s\")'\n"
    (book / outputs.ROWS).write_text(row.format("first"))
    assert outputs.compare(book).differences
    (book / outputs.ROWS).write_text(row.format("second"))
    assert not outputs.compare(book).differences


def test_a_build_with_another_output_than_the_committed_one_fails_and_says_what_to_do(
    tiny_book: Path, tmp_path: Path
) -> None:
    folder = copy_tiny_book(tmp_path / "book")
    shutil.copytree(tiny_book / "_build", folder / "_build")
    shutil.copytree(tiny_book / "notebooks", folder / "notebooks")
    change(folder / outputs.COMMITTED / "second.ipynb", "exactly 0.5", "exactly 0.25")
    result = run_book("html", folder, D2L_MGPU_SOURCE="generated")
    assert result.returncode == 1, result.stdout
    for text in (
        'notebooks/en/second.ipynb, code cell 1: print("accuracy 0.912, 1.25 s")',
        "committed:\n    accuracy 0.912, 1.25 s\n    exactly 0.25",
        "just built:\n    accuracy 0.912, 1.25 s\n    exactly 0.5",
        "4 cells as committed, 1 not compared",
        "make notebooks",
        "COMPARE=no",
    ):
        assert text in result.stdout, result.stdout
    assert (folder / "_build/html/zh/chapters/second.html").exists()  # one can look at it


def test_a_variable_asks_for_no_comparison(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPARE", "no")
    site.compare_outputs(book)  # it could not be built: there are no chapters


# This book


def test_the_rows_name_cells_of_the_committed_notebooks() -> None:
    rows = tomllib.loads((ROOT / outputs.ROWS).read_text(encoding="utf-8"))["cell"]
    for row in rows:
        notebook = nbformat.read(ROOT / outputs.COMMITTED / f"{row['chapter']}.ipynb", as_version=4)
        starts = [outputs.first_line(each) for each in outputs.code_cells(notebook)]
        assert starts.count(row["starts"]) == 1, row


def test_it_can_be_typed(book: Path) -> None:
    command = [sys.executable, "-m", "book.outputs", str(book)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0 and "5 cells as committed" in result.stdout, result.stderr
