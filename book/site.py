"""Build the book: `python -m book.site html`, `pdf`, `notebooks` or `locales`.

The pages and the notebooks of a language share one set of doctrees, and all languages share one
execution cache, so whatever comes second executes nothing.
"""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from jupyter_book.sphinx import build_sphinx

from book.facts import ROOT
from book.theme import pdf
from book.translation.languages import ENGLISH, LANGUAGES, TRANSLATIONS, Language


def build(root: Path, builder: str, language: Language = ENGLISH, **settings: Any) -> Path:
    """Build the book in `root` with a Sphinx builder and return the folder it wrote.

    Every warning is an error. Raises SystemExit when there was one.
    """
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


def build_each(root: Path, builder: str) -> Iterator[tuple[Language, Path]]:
    """Build every language; English, which comes first, executes the chapters.

    Each translation gets a process of its own, because Sphinx keeps words of the first language.
    """
    yield ENGLISH, build(root, builder)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
        for language in TRANSLATIONS:
            yield language, pool.submit(build, root, builder, language).result()


def write_site(root: Path, only: str | None = None) -> None:
    """Build the pages, and say how long each language took.

    `only` names the folder of a language that is to be built alone.
    """
    if only:
        build(root, "html", next(each for each in LANGUAGES if each.folder == only))
        return
    clock = [time.monotonic()]
    for language, _ in build_each(root, "html"):
        clock.append(time.monotonic())
        ratio = (clock[-1] - clock[0]) / (clock[1] - clock[0])
        seconds = f"{clock[-1] - clock[-2]:.0f} s, {ratio:.2f} times the English build so far"
        print(f"{language.name}: {seconds}", flush=True)


def write_pdfs(root: Path) -> None:
    """Print the site; if it had no PDFs before, its pages are written again, to link to them."""
    pdf.find_browser()
    write_site(root)
    if pdf.write(root):
        write_site(root)


def write_notebooks(root: Path) -> None:
    """Build the notebooks and put them into `notebooks`, where readers and tests find them."""
    for language, built in build_each(root, "notebooks"):
        target = root / "notebooks" / language.folder
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(built, target, ignore=shutil.ignore_patterns("reports"))  # of errors


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
        case ["html", folder, only] if only in [language.folder for language in LANGUAGES]:
            write_site(Path(folder).resolve(), only)
        case [command, *folders] if command in COMMANDS and len(folders) < 2:
            COMMANDS[command](Path(folders[0]).resolve() if folders else ROOT)
        case _:
            sys.exit(
                f"usage: python -m book.site {'|'.join(COMMANDS)} [folder of the book [language]]"
            )
