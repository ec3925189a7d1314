"""The switch between PyTorch and MXNet: where it stands, where it leads, what it remembers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Page

from book.languages import ENGLISH, TRANSLATIONS
from book.pdf.printable_book import join_pages
from tests.site.test_accessibility import violations
from tests.site.test_keyboard import FOCUSED, tab_to
from tests.support.built_site import soup
from tests.support.tiny_book import copy_tiny_book, run_book, translate

PT = TRANSLATIONS[0]
LONG = "A paragraph that fills the page with words. " * 80
NOTEBOOK = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {name: python3, language: python, display_name: Python 3}
---
"""
SHARED = f"## A Start\n\n{LONG}\n\n## A Shared Section\n\n{LONG}\n\n"
SOURCES = {
    "towers": f"{NOTEBOOK}# Towers\n\n{LONG}\n\n{SHARED}### Only in PyTorch\n\n{LONG}\n",
    "roofs": "# Roofs\n\nText.\n",
    "gluon/towers": f"# Towers in MXNet\n\n{LONG}\n\n## Only in MXNet\n\n{LONG}\n\n{SHARED}",
    "gluon/roofs": "# Tiles\n\nText.\n",
    "gluon/alone": "# Alone\n\nText.\n",
}
TOC = "".join(f"      - file: chapters/{name}\n" for name in SOURCES)
# The buttons of the header that a click in their middle does not reach.
COVERED = """() => [...document.querySelectorAll(
  ".bd-header-article :is(.btn, .sidebar-toggle, .frameworks > *, summary, #bilingual)")]
  .filter((each) => each.checkVisibility()).filter((each) => {
    const { x, y, width, height } = each.getBoundingClientRect();
    return !each.contains(document.elementFromPoint(x + width / 2, y + height / 2));
  }).map((each) => each.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny book with twins, in English and, as to a few words, in Portuguese."""
    folder = copy_tiny_book(tmp_path_factory.mktemp("frameworks") / "book")
    (folder / "chapters/gluon").mkdir()
    for name, text in SOURCES.items():
        (folder / f"chapters/{name}.md").write_text(text)
    toc = folder / "_toc.yml"
    toc.write_text(toc.read_text() + TOC)
    assert run_book("locales", folder).returncode == 0
    translate(folder, PT, {"A Shared Section": "Uma seção comum"})
    for spoken in (ENGLISH, PT):
        result = run_book("html", folder, spoken.folder, D2L_MGPU_SOURCE="generated")
        assert result.returncode == 0, result.stdout
    return folder / "_build" / "html"


@pytest.fixture
def page(browser: Browser, site: Path) -> Iterator[Page]:
    """A page of a new reader's browser, which resolves addresses in the site, without a server."""
    context = browser.new_context(
        offline=True, reduced_motion="reduce", base_url=f"{site.as_uri()}/chapters/"
    )
    context.set_default_timeout(10_000)
    yield context.new_page()
    context.close()


def way(page: Page, name: str, side: str = "right-next") -> str:
    """Where a page says that its neighbor is."""
    page.goto(f"{name}.html")
    return page.eval_on_selector(f"a.{side}", "a => a.href").rpartition("/html/chapters/")[2]


def switch(page: Page, there: str) -> None:
    """Click the other framework as a mouse does: Playwright's own click may scroll first."""
    page.dispatch_event(".frameworks a", "click")
    page.wait_for_url(f"**/chapters/{there}")


@pytest.mark.site
@pytest.mark.parametrize("spoken", [ENGLISH, PT], ids=lambda spoken: spoken.code)
def test_twins_link_to_each_other_and_other_pages_have_no_switch(site: Path, spoken) -> None:
    chapters = site / spoken.path / "chapters"
    pairs = {"towers": ("PyTorch", "gluon/towers"), "gluon/towers": ("MXNet", "towers")}
    for name in ("index", "first", "gluon/alone", *pairs):
        found = soup(chapters / f"{name}.html").select("nav.frameworks")
        assert len(found) == (name in pairs), name
        for nav in found:
            current, other = pairs[name]
            assert nav.select_one("[aria-current]").get_text() == current
            (link,) = nav.select("a")  # an address, so that it needs no script
            there = (chapters / f"{name}.html").parent / link["href"]
            assert there.resolve() == (chapters / f"{other}.html").resolve()


@pytest.mark.site
def test_what_twins_share_is_translated_once(site: Path) -> None:
    for name in ("towers", "gluon/towers"):
        heading = soup(site / f"pt/chapters/{name}.html").select_one("#a-shared-section h2")
        assert "Uma seção comum" in heading.get_text()
        catalogue = site.parent.parent / f"locales/pt_BR/LC_MESSAGES/chapters/{name}.po"
        assert ('"A Shared Section"' in catalogue.read_text()) == (name == "towers")


@pytest.mark.site
def test_an_mxnet_page_stands_at_the_place_of_its_twin(site: Path) -> None:
    ways = {"towers": ("second", "roofs"), "gluon/towers": ("../second", "../roofs")}
    for name, (before, after) in (ways | {"roofs": ("towers", None)}).items():
        found = soup(site / f"chapters/{name}.html")
        assert found.select_one("a.left-prev")["href"] == f"{before}.html"
        following = found.select_one("a.right-next")
        assert (following and following["href"]) == (after and f"{after}.html")


@pytest.mark.parametrize(
    ("here", "section", "there"),
    [
        ("towers", "", "gluon/towers.html"),
        ("towers", "only-in-pytorch", "gluon/towers.html#a-shared-section"),
        ("gluon/towers", "only-in-mxnet", "towers.html"),
        ("../pt/chapters/gluon/towers", "a-shared-section", "towers.html#a-shared-section"),
    ],
)
def test_the_switch_keeps_the_section_or_the_nearest_before_it(
    page: Page, here: str, section: str, there: str
) -> None:
    page.goto(f"{here}.html#{section}")
    page.wait_for_function("section => currentSection() === section", arg=section)
    switch(page, there)
    assert ("/pt/" in page.url) == ("/pt/" in here)


def test_the_choice_is_remembered(page: Page) -> None:
    assert way(page, "second") == "towers.html"
    assert way(page, "gluon/towers") == "gluon/roofs.html"  # what is open goes on
    page.goto("towers.html")
    switch(page, "gluon/towers.html")
    assert way(page, "second") == way(page, "roofs", "left-prev") == "gluon/towers.html"
    assert way(page, "towers", "left-prev") == "second.html"  # which has no twin
    page.goto("gluon/towers.html")
    switch(page, "towers.html")
    assert way(page, "second") == "towers.html"
    assert way(page, "gluon/towers") == "roofs.html"


def test_where_nothing_can_be_stored_the_switch_still_leads_to_the_section(page: Page) -> None:
    blocked = "{get() { throw new Error('blocked'); }}"
    page.add_init_script(f"Object.defineProperty(window, 'localStorage', {blocked})")
    page.goto("towers.html#a-shared-section")
    switch(page, "gluon/towers.html#a-shared-section")
    assert way(page, "gluon/towers") == "gluon/roofs.html"


@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (768, "dark"), (1280, "light")])
@pytest.mark.parametrize("name", ["towers", "../pt/chapters/gluon/towers"])
def test_the_switch_is_in_sight_and_accessible_and_works_by_keyboard(
    page: Page, name: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{name}.html")
    assert violations(page) == []
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    page.evaluate("scrollTo({top: 2000, behavior: 'instant'})")
    assert page.evaluate(COVERED) == []
    tab_to(page, ".frameworks a")
    stop = page.evaluate(FOCUSED)
    assert stop["seen"] and stop["inside"] and not stop["covered"]
    page.add_style_tag(content=".frameworks { position: absolute; left: -3rem }")
    assert page.evaluate(COVERED) != []  # a planted fault
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/chapters/{'gluon/' * ('gluon' not in name)}towers.html*")


@pytest.mark.site
def test_twins_make_one_sound_book_on_paper(site: Path) -> None:
    printed = join_pages(site.parent.parent, ENGLISH)
    assert 'class="frameworks"' not in printed.html and printed.broken == []
    ids = [tag["id"] for tag in BeautifulSoup(printed.html, "html.parser").find_all(id=True)]
    assert len(ids) == len(set(ids))
