"""The buttons of a page: its editor, a report about it, its notebook elsewhere, how to run it."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from book.config import addresses, notebook_path
from book.languages import LANGUAGES, TRANSLATIONS
from book.pages.buttons import launch_links
from tests.support import ROOT
from tests.support.built_site import soup
from tests.support.their_book import REPOSITORY, SITE


@pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
def test_a_page_leads_to_its_editor_and_to_a_report_about_it(their_book: Path, spoken) -> None:
    page = soup(their_book / "_build/html" / f"{spoken.path}chapters/first.html")
    source = f"locales/{spoken.code}/LC_MESSAGES/chapters/first.po"
    edit = page.select_one(".btn-source-edit-button")["href"]
    assert edit == f"{REPOSITORY}/edit/main/" + (source if spoken.path else "chapters/first.md")
    report = urlsplit(page.select_one(".btn-source-issues-button")["href"])
    assert report.geturl().startswith(f"{REPOSITORY}/issues/new?")
    query = parse_qs(report.query)
    assert "chapters/first" in query["title"][0] and spoken.tag in query["title"][0]
    assert query["body"] == [f"{SITE}/{spoken.path}chapters/first.html"]


def test_only_pages_with_a_source_can_be_edited(their_book: Path) -> None:
    assert not soup(their_book / "_build/html" / "search.html").select(".btn-source-edit-button")


def test_every_page_is_edited_in_a_file_of_the_repository() -> None:
    for path in (ROOT / "chapters").glob("**/*.md"):
        for spoken in TRANSLATIONS:
            page = path.relative_to(ROOT).with_suffix(".po")
            assert (ROOT / f"locales/{spoken.code}/LC_MESSAGES" / page).is_file()


def test_a_chapter_says_how_to_run_it_locally(their_book: Path) -> None:
    for spoken in LANGUAGES:
        page = soup(their_book / "_build/html" / f"{spoken.path}chapters/first.html")
        links = [a["href"] for a in page.select(".dropdown-launch-buttons a")]
        address, _, section = links[-1].partition("#")
        assert address == "index.html"
        index = soup(their_book / "_build/html" / f"{spoken.path}chapters/index.html")
        assert index.find(id=section)


def test_each_page_with_code_opens_its_notebook_in_colab_and_studio_lab(tiny_book: Path) -> None:
    where = addresses(ROOT)
    for chapter in ("first", "second"):
        page = (tiny_book / f"_build/html/chapters/{chapter}.html").read_text()
        notebook = notebook_path(f"chapters/{chapter}")
        for link in launch_links(where, notebook).values():
            assert f'href="{link}"' in page
        assert f'href="../{notebook}"' in page
    assert "colab.research" not in (tiny_book / "_build/html/chapters/index.html").read_text()


def test_every_launch_button_opens_a_file_of_the_repository() -> None:
    pages = (ROOT / "chapters").glob("**/*.md")
    chapters = [page for page in pages if "\nkernelspec:" in page.read_text()]
    assert chapters
    for chapter in chapters:
        docname = chapter.relative_to(ROOT).with_suffix("").as_posix()
        assert (ROOT / notebook_path(docname)).is_file(), "make notebooks"
