"""The site needs nothing from outside: on a server, in the search, and in what it ships.

tests/site/test_every_page.py opens each page without a network.
"""

import re
from importlib.metadata import distribution
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from book.languages import LANGUAGES, Language
from book.pages.licenses import FILE, PACKAGES
from book.theme.icons import ALIASES, ICONS
from tests.support import ROOT
from tests.support.built_site import SITE, chapter, load_everything, pages, served, watched

pytestmark = pytest.mark.site
EACH_LANGUAGE = pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
TURNS = [(["folder", "server"][number % 2], spoken) for number, spoken in enumerate(LANGUAGES)]
FILES = f"{SITE.as_uri()}/"


@EACH_LANGUAGE
def test_a_chapter_works_below_a_path_of_a_server(browser: Browser, spoken: Language) -> None:
    with served(SITE) as base, watched(browser, base) as (page, problems):
        page.goto(base + chapter(spoken))
        load_everything(page)
        page.wait_for_load_state("networkidle")
        assert not problems


@pytest.mark.parametrize(("where", "spoken"), TURNS)
def test_the_search_works(browser: Browser, spoken: Language, where: str) -> None:
    with served(SITE) as server:
        base = server if where == "server" else FILES
        with watched(browser, base) as (page, problems):
            page.goto(f"{base}{spoken.path}search.html?q=GPU")
            page.wait_for_function("Search.title && !Search.title.contains(Search.dots)")
            assert page.locator("#search-results li").count() > 2
            if where == "server":
                page.wait_for_selector("#search-results p.context")
            assert not problems


@pytest.mark.parametrize(
    "body, problem",
    [
        ("<script src='https://example.org/x.js'></script>", "request outside the site"),
        ("<link rel='stylesheet' href='//example.org/x.css'>", "request outside the site"),
        ("<img src='missing.svg'>", "missing.svg"),
        ("<script>console.warn('look')</script>", "console warning"),
        ("<script>missing()</script>", "missing is not defined"),
        ("<script>Promise.reject(new Error('lost'))</script>", "lost"),
        ("<script>fetch('page.html')</script>", "fetch"),
    ],
)
def test_a_planted_defect_is_noticed(
    browser: Browser, tmp_path: Path, body: str, problem: str
) -> None:
    (tmp_path / "page.html").write_text(f"<!DOCTYPE html><title>A page</title>{body}")
    with watched(browser, tmp_path.as_uri()) as (page, problems):
        page.goto((tmp_path / "page.html").as_uri())
        load_everything(page)
        page.wait_for_timeout(100)
        assert problem in " ".join(problems)


def test_an_address_from_the_root_on_is_noticed(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "x.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (tmp_path / "page.html").write_text("<!DOCTYPE html><title>A page</title><img src='/x.svg'>")
    with served(tmp_path) as base, watched(browser, base) as (page, problems):
        page.goto(f"{base}page.html")
        load_everything(page)
        assert any("/x.svg" in problem for problem in problems)


def test_every_icon_of_a_page_is_drawn() -> None:
    used = {
        name
        for page in pages()
        for classes in re.findall(r'class="([^"]*\bfa-[^"]*)"', (SITE / page).read_text("utf-8"))
        for name in re.findall(r"\bfa-([\w-]+)", classes)
    }
    sizes_and_styles = {"lg", "solid", "regular", "brands"}
    drawn = {*ICONS, *(alias for aliases in ALIASES.values() for alias in aliases)}
    assert used - sizes_and_styles <= drawn
    assert {"rocket", "sun"} <= used


def test_nothing_of_the_icon_font_is_left() -> None:
    style = (SITE / "_static/styles/pydata-sphinx-theme.css").read_text("utf-8")
    assert "@font-face" not in style and ".fa-rocket" not in style
    assert ".fa-lg" in style and ".admonition" in style  # only the font and its characters went


def test_what_is_shipped_names_its_license() -> None:
    """Each static file is the book's own, or comes from a package whose license is shipped too."""
    licenses = (SITE / FILE).read_text("utf-8")
    theirs = set()
    for package in PACKAGES:
        installed = distribution(package)
        assert f"{installed.name} {installed.version}: LICENSE" in licenses
        files = {Path(file).name for file in installed.files or ()}
        theirs |= {re.sub(r"(_t|\.jinja)$", "", name) for name in files}  # some are templates
    written = {Path(FILE).name, "icons.css", "pygments.css", "card.png", "twins.js"}
    ours = {file.name for file in [*ROOT.glob("book/**/static/**/*"), *ROOT.glob("chapters/img/*")]}
    shipped = {
        # MyST-NB and Sphinx put sums into names.
        re.sub(r"\.[0-9a-f]{64}\.", ".", file.name)
        for file in (SITE / "_static").rglob("*")
        if file.is_file()
    }
    assert shipped <= theirs | written | ours
