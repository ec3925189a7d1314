"""A page says when and on what it was executed; a notebook does not."""

import json
import platform
import re
import shutil
from importlib.metadata import version
from pathlib import Path

from book.languages import LANGUAGES
from tests.support.built_site import soup
from tests.support.tiny_book import run_book


def provenance(book: Path, page: str) -> str:
    found = soup(book / "_build/html" / page).select_one(".provenance")
    return found.get_text() if found else ""


def test_a_page_says_when_and_on_what_it_was_executed(tiny_book: Path) -> None:
    said = {provenance(tiny_book, f"{each.path}chapters/first.html") for each in LANGUAGES}
    (sentence,) = said  # nothing of this book is translated
    assert re.search(r"Executed on \d{4}-\d\d-\d\d ", sentence)
    assert version("torch").partition("+")[0] in sentence
    assert platform.python_version() in sentence
    assert re.search(r"Devices: (cpu|\w+:0)", sentence)
    assert "generated images" in sentence


def test_a_page_without_cells_says_nothing_of_the_kind(tiny_book: Path) -> None:
    assert provenance(tiny_book, "chapters/index.html") == ""


def test_a_notebook_is_the_same_on_every_machine(tiny_book: Path) -> None:
    notebook = (tiny_book / "_build/notebooks/en/first.ipynb").read_text()
    assert version("torch").partition("+")[0] not in notebook and "Executed on" not in notebook


def test_a_build_that_executes_nothing_keeps_the_facts(tiny_book: Path, tmp_path: Path) -> None:
    book = shutil.copytree(tiny_book, tmp_path / "book")
    for path in book.glob("_build/.jupyter_cache/*/executed/*/provenance.json"):
        facts = json.loads(path.read_text())
        facts |= {"time": "2001-02-03T04:05:06+00:00", "framework": "PyTorch 0.1", "data": "real"}
        path.write_text(json.dumps(facts))
    chapter = book / "chapters/first.md"
    chapter.write_text(chapter.read_text().replace("A second paragraph.", "Another one."))
    result = run_book("html", book, D2L_MGPU_SOURCE="generated")
    assert "0 chapters executed" in result.stdout
    sentence = provenance(book, "vi/chapters/first.html")
    assert "2001-02-03" in sentence and "PyTorch 0.1 " in sentence and "Fashion-MNIST" in sentence
