"""Build the book: `python -m book.site html` or `python -m book.site notebooks`.

Both share one set of doctrees and one execution cache, so whichever comes second executes nothing.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from jupyter_book.sphinx import build_sphinx

from book.facts import ROOT


def build(root: Path, builder: str) -> Path:
    """Build the book in `root` with a Sphinx builder and return the folder it wrote.

    Every warning is an error. Raises SystemExit when there was one.
    """
    doctrees = root / "_build" / ".doctrees"
    out = root / "_build" / builder
    result = build_sphinx(
        root,
        out,
        noconfig=True,
        path_config=root / "_config.yml",
        confoverrides={"external_toc_path": str(root / "_toc.yml"), "latex_individualpages": False},
        doctreedir=doctrees,
        builder=builder,
        warningiserror=True,
        keep_going=True,
        quiet=False,
    )
    if result:
        # Sphinx does not repeat the warnings of pages it does not read again.
        shutil.rmtree(doctrees, ignore_errors=True)
        raise SystemExit(1)
    return out


def write_notebooks(root: Path) -> None:
    """Build the notebooks and put them into `notebooks/en`, where readers and tests find them."""
    built = build(root, "notebooks")
    target = root / "notebooks" / "en"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for notebook in sorted(built.glob("*.ipynb")):
        shutil.copy(notebook, target)


if __name__ == "__main__":
    commands = {"html": lambda root: build(root, "html"), "notebooks": write_notebooks}
    match sys.argv[1:]:
        case [command, *folder] if command in commands and len(folder) < 2:
            commands[command](Path(folder[0]).resolve() if folder else ROOT)
        case _:
            sys.exit(f"usage: python -m book.site {'|'.join(commands)} [folder of the book]")
