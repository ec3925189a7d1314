"""The package imports with torch and numpy alone, and offers every public name at its top."""

import subprocess
import sys
from pathlib import Path

import d2l_mgpu

PACKAGE = Path(d2l_mgpu.__file__).parent
TESTS = PACKAGE.parent / "tests" / "package"

NOT_AT_IMPORT = ["d2l", "IPython", "matplotlib", "torchvision", "cloudpickle", "pandas"]


def test_importing_the_package_imports_torch_and_numpy_only():
    code = f"import sys, d2l_mgpu; print([m for m in {NOT_AT_IMPORT} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_importable_from_the_package_and_documented():
    for name in d2l_mgpu.__all__:
        assert getattr(d2l_mgpu, name).__doc__, name


def map_of_the_package() -> dict[str, tuple[list[str], list[str]]]:
    """The table in the package's docstring: for each chapter its modules and its tests."""
    _, head, table, _ = d2l_mgpu.__doc__.split("\n=", maxsplit=3)
    ruler = "=" + head.splitlines()[0]
    widths = [len(column) + 1 for column in ruler.split()]
    rows: list[list[str]] = []
    for line in table.splitlines()[1:]:
        cells = [line[: widths[0]], line[widths[0] : sum(widths[:2])], line[sum(widths[:2]) :]]
        if cells[0].strip():
            rows.append(cells)
        else:  # the row goes on
            rows[-1] = [f"{above} {cell}" for above, cell in zip(rows[-1], cells, strict=True)]
    names = [[cell.replace(",", " ").split() for cell in cells] for cells in rows]
    return {" ".join(chapter): (modules, tests) for chapter, modules, tests in names}


def test_the_map_names_all_chapters_with_exercises_and_all_modules_once():
    exercises = {path.stem.replace("_", "-") for path in PACKAGE.glob("exercises/[!_]*.py")}
    assert {*map_of_the_package()} - {"all of them", "gluon/"} == exercises
    modules = [module for named, _ in map_of_the_package().values() for module in named]
    there = {path.stem for path in PACKAGE.glob("[!_]*.py")}
    there |= {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert sorted(modules) == sorted(there)


def test_every_chapter_has_a_test_file_by_the_name_of_a_module():
    for chapter, (modules, tests) in map_of_the_package().items():
        assert chapter == "all of them" or {*modules} & {*tests}, chapter
        for name in tests:
            assert any(TESTS.glob(f"**/test_{name}.py")), name
