"""The tiny book in tests/fixtures: copying it, editing it, building it as users do."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from book.languages import Language
from book.translation import catalogues
from tests.support import ROOT


def copy_tiny_book(folder: Path) -> Path:
    """A copy of the tiny book, configured like the real one."""
    shutil.copytree(ROOT / "tests" / "fixtures" / "book", folder)
    shutil.copy(ROOT / "_config.yml", folder)
    for name in ("references.bib", "img/logo.svg"):
        shutil.copy(ROOT / "chapters" / name, folder / "chapters" / name)
    return folder


def run_book(
    command: str, folder: Path, *language: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m book.site` on a book as the Makefile does; stdout and stderr come as one."""
    return subprocess.run(
        [sys.executable, "-m", "book.site", command, str(folder), *language],
        cwd=ROOT,
        env=os.environ | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def build_tiny_book(folder: Path) -> None:
    """Copy the tiny book to `folder`; build the site and the notebooks."""
    copy_tiny_book(folder)
    for command in ("html", "notebooks"):
        result = run_book(command, folder, D2L_MGPU_SOURCE="generated")
        assert result.returncode == 0, result.stdout


def executed(output: str) -> list[str]:
    """The chapters that a build says it executed."""
    return re.findall(r"^executed (\S+) +[\d.]+ s$", output, re.MULTILINE)


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text that stands in a file."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def translate(book: Path, spoken: Language, words: dict[str, str]) -> None:
    """Write translations into all catalogues of a book that have their English."""
    for path in catalogues.folder(book, spoken).glob("**/*.po"):
        catalogue = catalogues.read(path, spoken)
        for message in catalogue:
            message.msgstr = words.get(message.msgid, message.msgstr)
        catalogues.write(path, catalogue)
