"""Build the book: `python -m book.site html`, `pdf`, `notebooks` or `locales`.

The pages and the notebooks of a language share one set of doctrees, and all languages share one
execution cache, so whatever comes second executes nothing.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

from jupyter_book.sphinx import build_sphinx
from sphinx.locale import translators

from book.facts import ROOT
from book.theme import pdf
from book.translation.languages import ENGLISH, LANGUAGES, Language


def build(root: Path, builder: str, language: Language = ENGLISH, **settings: Any) -> Path:
    """Build the book in `root` with a Sphinx builder and return the folder it wrote.

    Every warning is an error. Raises SystemExit when there was one.
    """
    translators.clear()  # else the words of the language that was built before would come first
    kind = "catalogues" if builder == "catalogues" else language.folder
    doctrees = root / "_build" / ".doctrees" / kind
    out = root / "_build" / builder / (language.path if builder == "html" else kind)
    result = build_sphinx(
        root,
        out,
        noconfig=True,
        path_config=root / "_config.yml",
        confoverrides={
            "external_toc_path": str(root / "_toc.yml"),
            "latex_individualpages": False,
            "language": language.code,
            **settings,
        },
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


def write_site(root: Path) -> None:
    """Build the pages of every language; English, which comes first, executes the chapters."""
    seconds: list[float] = []
    for language in LANGUAGES:
        start = time.monotonic()
        build(root, "html", language)
        seconds.append(time.monotonic() - start)
        ratio = f"{sum(seconds) / seconds[0]:.2f} times the English build so far"
        print(f"{language.name}: {seconds[-1]:.0f} s, {ratio}", flush=True)


def write_pdfs(root: Path) -> None:
    """Print the site; if it had no PDFs before, its pages are written again, to link to them."""
    pdf.find_browser()
    write_site(root)
    if pdf.write(root):
        write_site(root)


def write_notebooks(root: Path) -> None:
    """Build the notebooks and put them into `notebooks`, where readers and tests find them."""
    for language in LANGUAGES:
        built = build(root, "notebooks", language)
        target = root / "notebooks" / language.folder
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(built, target)


def write_catalogues(root: Path) -> None:
    """Bring the catalogues up to the English text, without executing anything."""
    build(root, "catalogues", nb_execution_mode="off")


COMMANDS = {
    "html": write_site,
    "pdf": write_pdfs,
    "notebooks": write_notebooks,
    "locales": write_catalogues,
}

if __name__ == "__main__":
    match sys.argv[1:]:
        case [command, *folder] if command in COMMANDS and len(folder) < 2:
            COMMANDS[command](Path(folder[0]).resolve() if folder else ROOT)
        case _:
            sys.exit(f"usage: python -m book.site {'|'.join(COMMANDS)} [folder of the book]")
