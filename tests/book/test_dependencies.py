"""What a chapter depends on is found in its cells and in the modules that they import."""

import re
from pathlib import Path

import nbformat
import pytest
from myst_nb.core.read import read_myst_markdown_notebook

from book import outputs
from book.config import GLUON
from book.execution.dependencies import Dependencies, pins
from tests.support import ROOT

CHAPTER = """---
jupytext:
  text_representation:
    format_name: myst
kernelspec:
  name: python3
  display_name: Python 3
---

# Title

```{{code-cell}} ipython3
{code}
```
"""
MODULES = {
    "__init__": (
        '"""Text."""\nfrom d2l_mgpu import one, part\nfrom d2l_mgpu.two import second as other\n'
        '__all__ = ["one"]\n'
    ),
    "one": "def first(): ...\n",
    "two": "from d2l_mgpu.three import third\ndef second(): ...\n",
    "three": "def third():\n    from d2l_mgpu import lazy\n",
    "lazy": "",
    "typed": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import d2l_mgpu.one\n"
        "else:\n    import d2l_mgpu.lazy\n"
    ),
    "program": "import d2l_mgpu.one\n",
    "part/__init__": "from d2l_mgpu.part.inner import thing\nfrom d2l_mgpu.one import first\n"
    "import d2l_mgpu.lazy as lazy\ndef made_here():\n    first()\n",
    "part/inner": "",
    "part/__main__": "import d2l_mgpu.typed\n",
    "exercises/__init__": "def check(): ...\n",
    "exercises/a_chapter": "from d2l_mgpu.exercises import check\nimport d2l_mgpu.lazy\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in MODULES.items():
        path = tmp_path / f"d2l_mgpu/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def needs(root: Path, code: str, docname: str = "chapters/other") -> set[str]:
    """What a chapter with this cell needs, without the package itself."""
    found = Dependencies(root).of(docname, CHAPTER.format(code=code)).keys()
    return {name.removeprefix("d2l_mgpu.") for name in found - {"d2l_mgpu"}}


PART = {"part", "one"}  # the function of the package `part`, and what it calls


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import torch", set()),
        ("import d2l_mgpu", set()),
        ("import d2l_mgpu\nd2l_mgpu.one.first()", {"one"}),
        ("import d2l_mgpu.one", {"one"}),
        ("from d2l_mgpu import one", {"one"}),
        ("from d2l_mgpu.one import first", {"one"}),
        ("from d2l_mgpu import other", {"two", "three", "lazy"}),
        ("import d2l_mgpu\nd2l_mgpu.other()", {"two", "three", "lazy"}),
        ("import d2l_mgpu.three", {"three", "lazy"}),
        ("import d2l_mgpu.typed", {"typed", "lazy"}),
        ("from d2l_mgpu.part import thing", PART | {"part.inner"}),
        ("from d2l_mgpu.part import made_here", PART),
        ("from d2l_mgpu import part\npart.thing", PART | {"part.inner", "lazy"}),
        ("import d2l_mgpu.part as p\np.thing", PART | {"part.inner", "lazy"}),
        ("from d2l_mgpu.part import *", PART | {"part.inner", "lazy"}),
        ('run(["-m", "d2l_mgpu.program"])', {"program", "one"}),
        ("!python -m d2l_mgpu.program --fast", {"program", "one"}),
        ("!python -m d2l_mgpu.part", PART | {"part.__main__", "typed", "lazy"}),
        ('text = f"""\nfrom d2l_mgpu import lazy, one\n{more}"""', {"lazy", "one"}),
        ("from d2l_mgpu import one\n1 +", {"one"}),
        ("# d2l_mgpu.one", set()),
    ],
)
def test_what_a_cell_names_is_followed_to_where_it_is_defined(
    package: Path, code: str, expected: set[str]
) -> None:
    assert needs(package, code) == expected


def test_the_checks_of_a_chapters_exercises_belong_to_it(package: Path) -> None:
    mine = {"exercises", "exercises.a_chapter", "lazy"}
    assert needs(package, "", "chapters/a-chapter") == mine
    assert needs(package, "", f"chapters/{GLUON}/a-chapter") == mine


def test_an_import_that_it_could_not_follow_is_an_error(package: Path) -> None:
    (package / "d2l_mgpu/one.py").write_text("from . import two\n")
    with pytest.raises(ValueError, match=r"Write out in full: from \. import two"):
        needs(package, "import d2l_mgpu.one")


def digest(root: Path, docname: str = "chapters/other") -> str:
    return Dependencies(root).digest(docname, CHAPTER.format(code="from d2l_mgpu import other"))


@pytest.mark.parametrize(
    ("module", "changes"),
    [("two", True), ("three", True), ("lazy", True), ("one", False), ("part/inner", False)],
)
def test_the_digest_changes_with_what_is_needed_and_with_nothing_else(
    package: Path, module: str, changes: bool
) -> None:
    before = digest(package)
    with (package / f"d2l_mgpu/{module}.py").open("a") as file:
        file.write("changed = True\n")
    assert (digest(package) != before) == changes


def test_what_a_package_does_when_imported_counts_but_not_what_it_passes_on(package: Path) -> None:
    before = digest(package)
    init = package / "d2l_mgpu/__init__.py"
    init.write_text(init.read_text().replace("Text", "Other text") + "import d2l_mgpu.typed\n")
    assert digest(package) == before
    init.write_text(init.read_text() + "one.first()\n")
    assert digest(package) != before


def test_pins_count_where_a_chapter_can_import_the_packages(package: Path) -> None:
    file = package / "requirements.txt"
    file.write_text("# pip install --no-deps d2l==1\ntorch==1 # why\n\n# The site\nsphinx==1\n")
    (package / "requirements-mxnet.txt").write_text("mxnet==1\n")
    assert pins(package, gluon=False) == ["torch==1", "--no-deps d2l==1"]
    assert pins(package, gluon=True) == ["torch==1", "--no-deps d2l==1", "mxnet==1"]
    before = digest(package), digest(package, f"chapters/{GLUON}/other")
    (package / "requirements-mxnet.txt").write_text("mxnet==2\n")
    after = digest(package), digest(package, f"chapters/{GLUON}/other")
    assert before[0] == after[0] and before[1] != after[1]
    file.write_text("torch==2\n")
    assert digest(package) != before[0]


def test_jupyter_cache_sees_the_digest_and_no_line_moves(package: Path) -> None:
    text = CHAPTER.format(code="import d2l_mgpu.one")
    marked = Dependencies(package).marked("chapters/other", text)
    notebook = read_myst_markdown_notebook(marked)
    found = Dependencies(package).digest("chapters/other", text)
    spec = {"name": "python3", "display_name": "Python 3"}
    assert notebook.metadata.kernelspec == spec | {"depends": found}
    assert notebook.metadata.jupytext.text_representation.format_name == "myst"
    assert marked.count("\n") == text.count("\n")
    assert marked.partition("# Title")[2] == text.partition("# Title")[2]
    assert Dependencies(package).marked("chapters/other", "# Page\n") == "# Page\n"


def test_no_reader_gets_to_see_the_digest(tiny_book: Path) -> None:
    """Neither on a page nor in a notebook."""
    book = Dependencies(tiny_book)
    for name in ("first", "second"):
        text = (tiny_book / f"chapters/{name}.md").read_text(encoding="utf-8")
        found = book.digest(f"chapters/{name}", text)
        for folder in ("_build/html", "notebooks"):
            for path in (tiny_book / folder).rglob("*"):
                assert path.is_dir() or found.encode() not in path.read_bytes(), path


# This book


@pytest.fixture(scope="module")
def chapters() -> dict[str, str]:
    """The chapters with code, and their texts."""
    found = {
        path.relative_to(ROOT).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
        for path in (ROOT / "chapters").glob("**/*.md")
    }
    return {name: text for name, text in found.items() if "\nkernelspec:" in text}


@pytest.mark.parametrize(
    ("module", "touched", "untouched"),
    [
        ("buckets", {"overlap"}, {"index", "splitting", "multiple-gpus", "errata"}),
        ("splitting", {"splitting"}, {"index", "fast", "multiple-gpus", "overlap", "processes"}),
        ("train", {"processes"}, {"index", "multiple-gpus", "splitting", "overlap"}),
        ("train.trainer", {"processes"}, {"index", "multiple-gpus", "splitting", "overlap"}),
        (
            "processes.launcher",
            {"processes", "multiple-gpus-concise", "overlap"},
            {"index", "splitting"},
        ),
        ("exercises.fast", {"fast"}, {"index", "overlap", "multiple-gpus"}),
        ("gluon.proofs", {"gluon/multiple-gpus"}, {"multiple-gpus", "index"}),
        ("scratch", {"index", "multiple-gpus-concise"}, set()),
    ],
)
def test_a_module_of_this_book_touches_the_chapters_that_use_it(
    chapters: dict[str, str], module: str, touched: set[str], untouched: set[str]
) -> None:
    book = Dependencies(ROOT)
    users = {
        name.removeprefix("chapters/")
        for name, text in chapters.items()
        if f"d2l_mgpu.{module}" in book.of(name, text)
    }
    assert touched <= users and not untouched & users


def test_what_a_chapter_checks_is_among_what_it_depends_on(chapters: dict[str, str]) -> None:
    book, found = Dependencies(ROOT), 0
    for name, text in chapters.items():
        sources = "".join(book.of(name, text).values())
        for exercise in re.findall(r'^check\("([\w-]+)"', text, re.MULTILINE):
            assert f'@exercise("{exercise}")' in sources, (name, exercise)
            found += 1
    assert found > 20


# They show the seconds of a training only as a part of its summary, and nobody compares them.
IN_PASSING = {"errata", "processes"}


def test_chapters_that_show_times_are_executed_alone(chapters: dict[str, str]) -> None:
    times = [regex for regex, form in outputs.sanitizer() if "TIME" in form or "RATE" in form]
    shown = set()
    for path in (ROOT / outputs.COMMITTED).glob("**/*.ipynb"):
        cells = outputs.code_cells(nbformat.read(path, as_version=4))
        text = "\n".join(outputs.shown(cell.outputs) for cell in cells)
        if any(re.search(regex, text) for regex in times):
            shown.add(path.relative_to(ROOT / outputs.COMMITTED).with_suffix("").as_posix())
    timed = {
        name.removeprefix("chapters/")
        for name, text in chapters.items()
        if "\ntimed: true\n" in text.partition("\n---\n")[0] + "\n"
    }
    assert shown - IN_PASSING == timed
