"""Row 9: one build for four languages beside four builds, and a warm build beside a cold one.

A build of the whole book takes many minutes, and a comparison many builds. So the book is cut
down to `CHAPTERS`; `python -m benchmarks.build` measures one pair with all of it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from benchmarks.pairs import Arms, judged, load, measure, refused

ROOT = Path(__file__).resolve().parent.parent
LANGUAGES = sorted(folder.name for folder in (ROOT / "notebooks").iterdir())  # English first
CHAPTERS = ("chapters/multiple-gpus",)  # besides the title page
PAIRS = 3
EXECUTED = re.compile(r"^(\d+) chapters executed", re.MULTILINE)


def copy_book(folder: Path, chapters: tuple[str, ...] | None) -> Path:
    """The book with these chapters only, which may refer to pages that are not there; or all."""
    for name in ("chapters", "locales"):
        shutil.copytree(ROOT / name, folder / name)
    settings = yaml.safe_load((ROOT / "_config.yml").read_text())
    if chapters is None:
        shutil.copy(ROOT / "_toc.yml", folder)
    else:
        contents = [{"file": name} for name in chapters]
        toc = {"format": "jb-book", "root": "chapters/index", "chapters": contents}
        (folder / "_toc.yml").write_text(yaml.safe_dump(toc))
        settings["sphinx"]["config"]["suppress_warnings"] += ["ref", "toc"]
    (folder / "_config.yml").write_text(yaml.safe_dump(settings))
    return folder


def build(book: Path, *language: str) -> int:
    """Build the site, or one language of it; return how many chapters were executed for it."""
    done = subprocess.run(
        [sys.executable, "-m", "book.site", "html", str(book), *language],
        cwd=ROOT,
        env=os.environ | {"D2L_MGPU_SOURCE": "generated"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(
            f"The book could not be built:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return sum(map(int, EXECUTED.findall(done.stdout)))


def forget(book: Path) -> None:
    """What follows is a first build."""
    shutil.rmtree(book / "_build", ignore_errors=True)


def together(book: Path) -> int:
    """One build of all languages, from nothing."""
    forget(book)
    return build(book)


def separately(book: Path) -> int:
    """A build for each language, each from nothing."""
    executed = 0
    for language in LANGUAGES:
        forget(book)
        executed += build(book, language)
    return executed


def pages(book: Path) -> set[str]:
    """The pages of the site that was built."""
    site = book / "_build" / "html"
    return {path.relative_to(site).as_posix() for path in site.rglob("chapters/*.html")}


@contextmanager
def books(chapters: tuple[str, ...] | None) -> Iterator[tuple[Path, Path]]:
    """Two copies of the book, in a folder that is removed."""
    with tempfile.TemporaryDirectory() as folder:
        yield copy_book(Path(folder, "a"), chapters), copy_book(Path(folder, "b"), chapters)


def language_arms(book: Path) -> Arms:
    """One build for all languages, and one for each."""
    once = together(book)
    made = pages(book)
    each = separately(book)
    if each != once * len(LANGUAGES):
        raise AssertionError(f"{each} executions separately, {once} together")
    last = LANGUAGES[-1]
    if {page for page in made if page.startswith(f"{last}/")} != pages(book):
        raise AssertionError(f"the pages in {last} differ")
    facts = {"executions together": once, "executions separately": each}
    return Arms(lambda: together(book), lambda: separately(book), facts)


def warm_arms(warm: Path, cold: Path) -> Arms:
    """A build of a book that is built already, and the first build."""
    executed = together(warm)
    again = build(warm)
    if again:
        raise AssertionError(f"{again} chapters were executed again although nothing changed")
    facts = {"executions cold": executed, "executions warm": again}
    return Arms(lambda: build(warm), lambda: together(cold), facts)


def rows(
    pairs: int | None = None, *, chapters: tuple[str, ...] | None = CHAPTERS
) -> list[dict[str, Any]]:
    """Both rows. The builds that check the arms are the warm-up."""
    made = []
    with books(chapters) as (a, b):
        for name, make in {
            "build, languages": lambda: language_arms(a),
            "build, warm": lambda: warm_arms(a, b),
        }.items():
            before = load()
            try:
                arms = make()
            except AssertionError as error:
                made.append(refused(name, error))
                continue
            rounds = measure(arms, pairs=pairs or PAIRS, warm_ups=0)
            facts = {"chapters": list(chapters) if chapters else "all", **arms.facts}
            made.append(judged(name, rounds, facts) | {"load": [before, load()]})
    return made


if __name__ == "__main__":
    from benchmarks import results

    results.write("build", rows(1, chapters=None))
    print(results.table(results.read()))
