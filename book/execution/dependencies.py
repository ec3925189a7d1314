"""What the outputs of a chapter depend on besides its own cells: modules of the package, and pins.

The modules are found without running anything: by the imports in the cells, in the programs that
the cells hold as text (`python -m d2l_mgpu.train` too), and in the modules themselves. A name that
a package only passes on leads to the module that defines it, so a chapter that imports
`d2l_mgpu.scatter` depends on one module rather than on all of them.

jupyter-cache knows a chapter by its cells and the `kernelspec` in its front matter. `marked` puts a
digest of all that into the latter.
"""

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from IPython.core.inputtransformer2 import TransformerManager
from myst_nb.core.read import read_myst_markdown_notebook

from book.config import INSTALL_D2L, pytorch_twin

PACKAGE = "d2l_mgpu"
PINS = "requirements.txt"
PINS_OF_GLUON = "requirements-mxnet.txt"
END_OF_PINS = "# The site"  # what comes after it in requirements.txt, no chapter imports
DEPENDS = "depends"  # the key in `kernelspec`
FRONT_MATTER = re.compile(r"\A---\n(.*?\n)---\n", re.DOTALL)
MENTIONED = re.compile(rf"\b{PACKAGE}(?:\.\w+)+")
IMPORTED = re.compile(rf"\bfrom +({PACKAGE}[.\w]*) +import +([\w, ]+)")


def dotted(node: ast.AST) -> str:
    """`a.b.c` for such an expression, else something that is no name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def imported(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """The names that an import binds, and what each of them is in full."""
    if isinstance(node, ast.ImportFrom):
        if node.level:
            raise ValueError(f"Write out in full: {ast.unparse(node)}")
        return {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    # `import a.b` binds `a`; what is used of it stands in the code as `a.b.c`.
    return {each.asname or each.name: each.name for each in node.names}


def references(tree: ast.AST) -> Iterator[str]:
    """Everything of the package that code names, in full: `d2l_mgpu.scratch.sgd`.

    `d2l_mgpu.gluon.*` stands for all that a package passes on, where the code got hold of the
    package itself under a name of its own.
    """
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and dotted(node.test).endswith("TYPE_CHECKING"):
            pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            for bound, name in imported(node).items():
                yield name
                if bound != name:
                    yield f"{name}.*"
        elif isinstance(node, ast.Attribute):
            yield dotted(node)


def mentions(text: str) -> Iterator[str]:
    """Everything of the package that a text names which may be a program or a command.

    A folder that is named may be run: then what counts is its `__main__`.
    """
    for name in MENTIONED.findall(text):
        yield from (name, f"{name}.__main__")
    for module, names in IMPORTED.findall(text):
        yield from (f"{module}.{name.split()[0]}" for name in names.split(",") if name.strip())


def of_cell(source: str) -> Iterator[str]:
    """Everything of the package that a cell names, in its code or in its strings."""
    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except SyntaxError:  # which the cell may be about
        yield from mentions(source)
        return
    yield from references(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from mentions(node.value)


class Modules:
    """The modules of the package in a folder, and what each of them needs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.known: dict[str, tuple[str, dict[str, str], list[str]]] = {}

    def path(self, module: str) -> Path | None:
        base = self.root.joinpath(*module.split("."))
        found = [path for path in (base / "__init__.py", base.with_suffix(".py")) if path.is_file()]
        return found[0] if found and module.split(".")[0] == PACKAGE else None

    def read(self, module: str) -> tuple[str, dict[str, str], list[str]]:
        """The text of a module that counts, the names that it passes on, what it refers to.

        Of a package, the text is what is left without its imports; what those bring counts if
        somebody asks for it by name.
        """
        if module not in self.known:
            path = self.path(module)
            assert path
            text = path.read_text(encoding="utf-8")
            passed_on: dict[str, str] = {}
            tree = ast.parse(text)
            if path.name == "__init__.py":
                for node in [*tree.body]:
                    if isinstance(node, ast.Import | ast.ImportFrom):
                        passed_on |= imported(node)
                        tree.body.remove(node)
                    elif ast.unparse(node).startswith("__all__ =") or is_docstring(node):
                        tree.body.remove(node)
                text = ast.unparse(tree)
            used = [
                passed_on[name.id]
                for name in ast.walk(tree)
                if isinstance(name, ast.Name) and name.id in passed_on
            ]
            self.known[module] = text, passed_on, [*used, *references(tree)]
        return self.known[module]

    def resolve(self, name: str) -> set[str]:
        """The modules behind a full name: the one that defines it, and the packages around it."""
        parts = name.split(".")
        starts = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
        found = [start for start in starts if self.path(start)]
        rest = parts[len(found) :]
        if not found or not rest:
            return set(found)
        _, passed_on, _ = self.read(found[-1])
        chosen = passed_on if rest[0] == "*" else {rest[0]} & passed_on.keys()
        return set(found).union(
            *(self.resolve(".".join([passed_on[each], *rest[1:]])) for each in chosen)
        )

    def closure(self, names: Iterable[str]) -> dict[str, str]:
        """All modules that are needed for these names, with the text of each that counts."""
        found: dict[str, str] = {}
        pending = [*names]
        while pending:
            for module in self.resolve(pending.pop()) - found.keys():
                found[module], _, needed = self.read(module)
                pending += needed
        return found


def is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def pins(root: Path, gluon: bool) -> list[str]:
    """The pinned packages that a chapter can import."""
    found = []
    for path in [root / PINS] + [root / PINS_OF_GLUON] * gluon:
        if path.exists():
            text = path.read_text(encoding="utf-8").partition(END_OF_PINS)[0]
            lines = [line.partition("#")[0].strip() for line in text.splitlines()]
            found += [line for line in lines if line] + INSTALL_D2L.findall(text)
    return found


class Dependencies:
    """What the chapters of the book in a folder depend on, as long as no file changes."""

    def __init__(self, root: Path) -> None:
        self.root, self.modules = root, Modules(root)
        self.digests: dict[tuple[str, str], str] = {}

    def of(self, docname: str, text: str) -> dict[str, str]:
        """The modules that a chapter needs, what checks its exercises too, with their texts."""
        cells = read_myst_markdown_notebook(text).cells
        exercises = f"{PACKAGE}.exercises.{PurePosixPath(docname).name.replace('-', '_')}"
        names = [exercises] if self.modules.path(exercises) else []
        for cell in cells:
            if cell.cell_type == "code":
                names += of_cell(cell.source)
        return self.modules.closure(names)

    def digest(self, docname: str, text: str) -> str:
        """Twelve hexadecimal digits that change with what a chapter depends on."""
        if (docname, text) not in self.digests:
            gluon = pytorch_twin(docname) is not None
            facts = [sorted(self.of(docname, text).items()), pins(self.root, gluon)]
            digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
            self.digests[docname, text] = digest[:12]
        return self.digests[docname, text]

    def marked(self, docname: str, text: str) -> str:
        """The text of a chapter with its digest in the front matter; other pages as they are.

        No line moves: Sphinx's warnings and the catalogues name lines.
        """
        match = FRONT_MATTER.match(text)
        front: dict[str, Any] = yaml.safe_load(match[1]) if match else {}
        if not match or "kernelspec" not in front:
            return text
        front["kernelspec"][DEPENDS] = self.digest(docname, text)
        lines = match[1].count("\n")
        return f"---\n{json.dumps(front)}" + "\n" * lines + "---\n" + text[match.end() :]
