"""Compare the outputs just built with the committed ones: `python -m book.outputs [folder]`.

Every cell of the English notebooks in `_build` is compared with the committed notebook of its
chapter by nbval's rules: what `tests/sanitize.cfg` names may differ, and so may cells with nbval's
tags. No kernel is needed. `tests/ignored_outputs.toml` lists the cells whose outputs depend on the
images or on the devices; they are not compared where these are others than the committed ones.
"""

import json
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import nbformat
from nbval.plugin import (
    IPyNbCell,
    coalesce_streams,
    find_comment_markers,
    find_metadata_tags,
    get_sanitize_patterns,
    nocolors,
)

from book.config import ROOT
from book.languages import ENGLISH

COMMITTED = Path("notebooks", ENGLISH.folder)
BUILT = Path("_build", "notebooks", ENGLISH.folder)
EXECUTIONS = "executions.json"  # beside the built notebooks: of which code, on what
ROWS = Path("tests", "ignored_outputs.toml")
KINDS = {"data", "devices"}  # what a cell may depend on
# What nbval leaves out when it compares; its list stands in the constructor of a pytest item.
LEFT_OUT = (
    "metadata",
    "traceback",
    "prompt_number",
    "output_type",
    "name",
    "execution_count",
    "application/vnd.jupyter.widget-view+json",
    "image/png",
    "image/jpeg",
)
# The line that says which images were loaded, and how many: there are 60,000 real ones, and fewer
# generated ones.
IMAGES = (
    r"(?:Generated garments \(not Fashion-MNIST\)|FashionMNIST): "
    r"\d+ training and \d+ test images, .*",
    "IMAGES",
)
ADVICE = """\
If the change is meant: make notebooks, look at what git says has changed, and commit it.
COMPARE=no goes on without this comparison: make book COMPARE=no"""


class Comparison:
    """nbval's comparison of the outputs of one cell, without pytest and without a kernel."""

    colors = nocolors
    compare_outputs = IPyNbCell.compare_outputs
    sanitize = IPyNbCell.sanitize

    def __init__(self, patterns: Iterable[tuple[str, str]]) -> None:
        self.parent = SimpleNamespace(skip_compare=LEFT_OUT, sanitize_patterns=dict(patterns))

    def format_output_compare(self, key: str, left: str, right: str) -> None:
        """nbval formats the first difference; we show both outputs whole."""


@dataclass
class Result:
    """What a comparison of all cells found."""

    same: int = 0
    left_out: int = 0  # cells that are not compared
    differences: list[str] = field(default_factory=list)

    def add(self, other: Self) -> None:
        self.same += other.same
        self.left_out += other.left_out
        self.differences += other.differences


def sanitizer() -> list[tuple[str, str]]:
    """The forms that may differ in every output."""
    text = (ROOT / "tests" / "sanitize.cfg").read_text(encoding="utf-8")
    return list(get_sanitize_patterns(text))


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def is_compared(cell: Any) -> bool:
    """Whether nbval compares the outputs of a cell, by its tags and comments."""
    options = dict(find_metadata_tags(cell.metadata)) | dict(find_comment_markers(cell.source))
    return options.get("check", True) and not options.get("skip", False)


def rows(root: Path) -> list[dict[str, Any]]:
    """The rows about single cells; ValueError for one that says what nobody understands."""
    path = root / ROWS
    found = tomllib.loads(path.read_text(encoding="utf-8")).get("cell", []) if path.exists() else []
    for row in found:
        if not row.get("reason") or not set(row.get("depends_on", [])) <= KINDS:
            raise ValueError(f"{path}: a row has a reason; depends_on lists some of {KINDS}: {row}")
    return found


def first_line(cell: Any) -> str:
    return cell.source.partition("\n")[0]


def shown(outputs: list[Any]) -> str:
    """Outputs as text, indented; of what is no text, its kind and its size."""
    parts = []
    for output in outputs:
        if output.output_type == "stream":
            parts.append(output.text)
        elif output.output_type == "error":
            parts.append(f"{output.ename}: {output.evalue}")
        else:
            for kind, value in output.data.items():
                text = kind.startswith("text/")
                parts.append(value if text else f"({kind}, {len(str(value)):,} characters)")
    text = "\n".join(part.rstrip("\n") for part in parts) or "(no output)"
    return "\n".join(f"    {line}" for line in text.splitlines())


def conditions(built: Any, committed: Any, facts: dict[str, str] | None) -> set[str]:
    """In what the execution of a built notebook differs from that of the committed one, which was
    on the CPU; `facts` are those of book/execution/provenance.py."""
    ours, theirs = (notebook.metadata.get("d2l_mgpu", {}) for notebook in (built, committed))
    data = {"data"} if ours.get("data") != theirs.get("data") else set()
    devices = {"devices"} if facts and "cpu" not in facts["devices"] else set()
    return data | devices


def compare_chapter(
    built: Any, committed: Any, differ: set[str], depends: dict[str, set[str]], where: str
) -> Result:
    """Compare two notebooks of a chapter; `depends` says what its cells depend on."""
    result = Result()
    ours, theirs = code_cells(built), code_cells(committed)
    if [cell.source for cell in ours] != [cell.source for cell in theirs]:
        result.differences.append(f"{where}: the chapter has other code by now")
        return result
    comparison = Comparison([*sanitizer(), *([IMAGES] if "data" in differ else [])])
    for number, (new, old) in enumerate(zip(ours, theirs, strict=True)):
        if not is_compared(new) or depends.get(first_line(new), set()) & differ:
            result.left_out += 1
            continue
        outputs = [coalesce_streams(cell.outputs) for cell in (new, old)]
        if comparison.compare_outputs(*outputs):
            result.same += 1
        else:
            result.differences.append(
                f"{where}, code cell {number}: {first_line(new)}\n"
                f"  committed:\n{shown(outputs[1])}\n  just built:\n{shown(outputs[0])}"
            )
    return result


def compare(root: Path) -> Result:
    """Compare the English notebooks in `_build` with the committed ones."""
    result = Result()
    executions = json.loads((root / BUILT / EXECUTIONS).read_text(encoding="utf-8"))
    depending = rows(root)
    names = {
        path.relative_to(folder).as_posix()
        for folder in (root / BUILT, root / COMMITTED)
        for path in folder.glob("**/*.ipynb")
    }
    for name in sorted(names):
        where = f"{COMMITTED.as_posix()}/{name}"
        built, committed = root / BUILT / name, root / COMMITTED / name
        if not committed.exists():
            result.differences.append(f"{where} is missing: its chapter has no notebook yet")
        elif not built.exists():
            result.differences.append(f"{where} is no chapter's notebook any more")
        else:
            chapter = name.removesuffix(".ipynb")
            new, old = (nbformat.read(path, as_version=4) for path in (built, committed))
            differ = conditions(new, old, executions[chapter]["executed"])
            depends = {
                row["starts"]: set(row.get("depends_on", []))
                for row in depending
                if row["chapter"] == chapter
            }
            result.add(compare_chapter(new, old, differ, depends, where))
    return result


def check(root: Path) -> None:
    """Print what the comparison found; SystemExit where an output is not as committed."""
    result = compare(root)
    for difference in result.differences:
        print(difference, end="\n\n")
    left_out = f", {result.left_out} not compared" if result.left_out else ""
    print(f"{result.same} cells as committed{left_out}", flush=True)
    if result.differences:
        sys.exit(f"{len(result.differences)} differences from notebooks/en. {ADVICE}")


if __name__ == "__main__":
    check(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT)
