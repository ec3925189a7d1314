"""Build the book: `python -m book.site html`, `pdf`, `notebooks`, `unexecuted` or `locales`.

The pages and the notebooks of a language share one set of doctrees, and all languages share one
execution cache, so whatever comes second executes nothing. When the pages are written, the outputs
they show are compared with the committed ones.
"""

import io
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from jupyter_book.sphinx import build_sphinx

from book import outputs
from book.config import ROOT
from book.execution.environment import cores
from book.languages import ENGLISH, LANGUAGES, TRANSLATIONS, Language
from book.pdf import chromium

NO_CHAPTERS = ["_build", ".*"]  # where Sphinx need not look: the environments hold many files


def build(
    root: Path,
    builder: str,
    language: Language = ENGLISH,
    *,
    folder: str | None = None,
    **settings: Any,
) -> Path:
    """Build the book in `root` with a Sphinx builder and return the folder it wrote.

    That is in `_build/<folder>`, which is named after the builder; a folder of another name has
    doctrees of its own. Every warning is an error. Raises SystemExit when there was one.
    """
    kind = "catalogues" if builder == "catalogues" else language.folder
    doctrees = root / "_build" / ".doctrees" / (folder or "") / kind
    out = root / "_build" / (folder or builder) / (language.path if builder == "html" else kind)
    result = build_sphinx(
        root,
        out,
        noconfig=True,
        path_config=root / "_config.yml",
        confoverrides={
            "exclude_patterns": NO_CHAPTERS,
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


def workers(count: int) -> ProcessPoolExecutor:
    """Processes that build, a new one for each build: Sphinx keeps words of the first language."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, context, max_tasks_per_child=1)


def build_apart(root: Path, builder: str, language: Language, **settings: Any) -> Path:
    """Build in a process beside others: what the build says comes in one piece, at its end."""
    said = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            return build(root, builder, language, **settings)
    finally:
        print(said.getvalue(), end="", flush=True)


def build_beside(
    root: Path, builder: str, languages: Sequence[Language], **settings: Any
) -> Iterator[tuple[Language, Path]]:
    """Build languages side by side, one on each core, and yield each when it is ready."""
    with workers(cores()) as pool:
        jobs = {
            pool.submit(build_apart, root, builder, language, **settings): language
            for language in languages
        }
        for job in as_completed(jobs):
            yield jobs[job], job.result()


def build_each(root: Path, builder: str) -> Iterator[tuple[Language, Path]]:
    """Build every language; English, which comes first, executes the chapters."""
    yield ENGLISH, build(root, builder)
    yield from build_beside(root, builder, TRANSLATIONS)


def write_pages(root: Path) -> None:
    """Build the pages, and say after how many seconds each language was ready."""
    start, english = time.monotonic(), 0.0
    for language, _ in build_each(root, "html"):
        seconds = time.monotonic() - start
        english = english or seconds
        ratio = f"{seconds / english:.2f} times the English build"
        print(f"{language.name}: {seconds:.0f} s, {ratio}, and it is ready", flush=True)


def compare_outputs(root: Path) -> None:
    """Compare the outputs on the pages with those of the committed notebooks, if there are any.

    SystemExit when they differ; the pages are written by then, so that one can look at them.
    """
    if os.environ.get("COMPARE") == "no" or not (root / outputs.COMMITTED).is_dir():
        return
    for _ in build_beside(root, "notebooks", [ENGLISH]):
        outputs.check(root)


def write_site(root: Path) -> None:
    """Build the pages of all languages and compare their outputs with the committed ones."""
    write_pages(root)
    compare_outputs(root)


def write_pdfs(root: Path) -> None:
    """Print the site; if it had no PDFs before, its pages are written again, to link to them."""
    chromium.find_browser()
    write_pages(root)
    if chromium.write(root):
        write_pages(root)
    compare_outputs(root)


def write_notebooks(root: Path) -> None:
    """Build the notebooks and put them into `notebooks`, where readers and tests find them."""
    not_for_readers = shutil.ignore_patterns("reports", outputs.EXECUTIONS)  # reports: of errors
    for language, built in build_each(root, "notebooks"):
        target = root / "notebooks" / language.folder
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(built, target, ignore=not_for_readers)


def write_unexecuted(root: Path) -> None:
    """Build the notebooks of all languages without outputs, into `_build/unexecuted`.

    Tests compare them with the committed ones, so they have to be what today's code makes: Sphinx
    does not see that its doctrees are older than our extensions.
    """
    doctrees = root / "_build" / ".doctrees" / "unexecuted"
    changed = max(path.stat().st_mtime for path in (ROOT / "book").rglob("*.py"))
    if not doctrees.exists() or doctrees.stat().st_mtime < changed:
        shutil.rmtree(doctrees, ignore_errors=True)
        doctrees.mkdir(parents=True)
    settings = {"folder": "unexecuted", "nb_execution_mode": "off"}
    for _ in build_beside(root, "notebooks", LANGUAGES, **settings):
        pass


def write_catalogues(root: Path) -> None:
    """Bring the catalogues up to the English text, without executing anything."""
    build(root, "catalogues", nb_execution_mode="off")


COMMANDS = {
    "html": write_site,
    "pdf": write_pdfs,
    "notebooks": write_notebooks,
    "unexecuted": write_unexecuted,
    "locales": write_catalogues,
}

if __name__ == "__main__":
    match sys.argv[1:]:
        case ["html", folder, only] if only in [language.folder for language in LANGUAGES]:
            build(
                Path(folder).resolve(),
                "html",
                next(each for each in LANGUAGES if each.folder == only),
            )
        case [command, *folders] if command in COMMANDS and len(folders) < 2:
            COMMANDS[command](Path(folders[0]).resolve() if folders else ROOT)
        case _:
            sys.exit(
                f"usage: python -m book.site {'|'.join(COMMANDS)} [folder of the book [language]]"
            )
