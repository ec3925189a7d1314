"""The code shown in the chapters is the package's, and short enough to show."""

import ast
from pathlib import Path

import pytest

from book.sync import chapters, definitions, package_source, saved_cells, synchronised
from tests.support import ROOT

CHAPTERS = chapters()
MODULE = '''import functools


@functools.cache
def double(x: int) -> int:
    """Twice `x`."""
    return 2 * x


class Halver:
    def halve(self, x: int) -> float:
        return x / 2
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "one.py").write_text(MODULE)
    return tmp_path


def cell(body: str, tags: str = "save") -> str:
    return f"Prose.\n\n```{{code-cell}} ipython3\n:tags: [{tags}]\n\n{body}\n```\n\nMore prose.\n"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_saved_cells_are_the_package_character_for_character(chapter: Path) -> None:
    text = chapter.read_text(encoding="utf-8")
    assert text == synchronised(text), "type: make sync"


def test_saved_functions_have_docstrings_of_at_most_six_lines() -> None:
    for chapter in CHAPTERS:
        for saved, _ in saved_cells(chapter.read_text(encoding="utf-8")):
            for node, _ in definitions(saved["body"]):
                lines = (ast.get_docstring(node) or "").splitlines()
                assert len(lines) <= 6, f"{node.name} in {chapter.name}: {len(lines)} lines"


def test_sync_copies_decorators_and_several_definitions(package: Path) -> None:
    stale = cell("def double(x):\n    return x + x\n\nclass Halver: ...")
    _, _, code = MODULE.partition("import functools\n\n\n")
    assert synchronised(stale, package) == cell(code.rstrip("\n"))


def test_sync_leaves_other_cells_alone(package: Path) -> None:
    text = cell("def double(x):\n    return x + x", tags="hide-input")
    assert synchronised(text, package) == text


def test_a_name_in_two_modules_needs_the_module_as_a_tag(package: Path) -> None:
    (package / "two.py").write_text("def double(x: int) -> int:\n    return x + x\n")
    with pytest.raises(ValueError, match="'double' stands in one and two"):
        package_source("double", ["save"], package)
    assert package_source("double", ["save", "two"], package).endswith("x + x")


def test_a_name_that_the_package_lacks_is_an_error(package: Path) -> None:
    with pytest.raises(ValueError, match="defines no 'triple'"):
        synchronised(cell("def triple(x): ..."), package)
