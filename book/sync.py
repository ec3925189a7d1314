"""Keep the code shown in the chapters equal to the package: `python -m book.sync` (`make sync`).

A code cell tagged `save` shows functions or classes of d2l_mgpu, character for character. The
package is the source: the cell names what it shows by defining it, the text is copied into it.
Where two modules define one name, a second tag names the module: `:tags: [save, gluon.scratch]`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from book.config import ROOT

CELL = re.compile(
    r"^(?P<fence>`{3,})\{code-cell\}[^\n]*\n"
    r"(?P<options>(?::[^\n]*\n|---\n(?:[^\n]*\n)*?---\n)*\n*)"
    r"(?P<body>.*?\n)(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
TAGS = re.compile(r"tags: *\[([^\]]*)\]")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions(source: str) -> Iterator[tuple[Definition, str]]:
    """Every top-level function and class of a module with its text, decorators included."""
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, Definition):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield node, "\n".join(lines[first - 1 : node.end_lineno])


def package_source(name: str, tags: list[str], package: Path) -> str:
    """The text of `name` in the package; ValueError when it is missing or ambiguous."""
    found = {
        ".".join(path.relative_to(package).with_suffix("").parts): text
        for path in sorted(package.glob("**/*.py"))
        for node, text in definitions(path.read_text(encoding="utf-8"))
        if node.name == name
    }
    chosen = [module for module in found if len(found) == 1 or module in tags]
    if len(chosen) == 1:
        return found[chosen[0]]
    if not found:
        raise ValueError(f"{package.name} defines no {name!r}: remove the tag 'save' or add it")
    raise ValueError(
        f"{name!r} stands in {' and '.join(found)}: add one of them to the cell's tags"
    )


def saved_cells(text: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    """Every cell tagged `save` with its tags."""
    for cell in CELL.finditer(text):
        tags = TAGS.search(cell["options"])
        names = [tag.strip() for tag in tags[1].split(",")] if tags else []
        if "save" in names:
            yield cell, names


def synchronised(text: str, package: Path = ROOT / "d2l_mgpu") -> str:
    """A chapter's text with every saved cell as the package has it."""
    for cell, tags in reversed(list(saved_cells(text))):
        names = [node.name for node, _ in definitions(cell["body"])]
        if not names:
            raise ValueError(f"This cell is tagged 'save' and defines nothing:\n{cell['body']}")
        body = "\n\n\n".join(package_source(name, tags, package) for name in names)
        text = f"{text[: cell.start('body')]}{body}\n{text[cell.end('body') :]}"
    return text


def chapters() -> list[Path]:
    """All chapters, those of the Gluon edition included."""
    return sorted((ROOT / "chapters").glob("**/*.md"))


if __name__ == "__main__":
    for chapter in chapters():
        before = chapter.read_text(encoding="utf-8")
        if (after := synchronised(before)) != before:
            chapter.write_text(after, encoding="utf-8")
            print(f"rewrote the saved cells of {chapter.relative_to(ROOT)}")
