"""Every page of the built book: WCAG 2.2 A and AA as far as axe can tell, phones, alternative text.

All of axe's rules are on, target-size too, which axe leaves out unless asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Page

from book.theme.pictures import LEGIBLE, least_width
from book.translation.languages import LANGUAGES, Language
from tests.conftest import ROOT

SITE = ROOT / "_build" / "html"
CHAPTERS = sorted(f"chapters/{path.stem}.html" for path in ROOT.glob("chapters/*.md"))
PAGES = [*CHAPTERS, "404.html", "genindex.html", "py-modindex.html", "search.html"]
CHAPTER = "chapters/devices-and-data.html"  # it has figures, plots, tables, and answers
WIDTHS = (320, 768, 1280)
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
AXE = """async (tags) => (await axe.run({
  runOnly: tags, resultTypes: ["violations"], rules: {"target-size": {enabled: true}},
})).violations.flatMap(({id, nodes}) => nodes.map(
  ({target, any, all, none}) => `${id} ${target}: ${[...any, ...all, ...none][0]?.message}`))"""
TWO_FRAMES = "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
OVERFLOW = "document.scrollingElement.scrollWidth - innerWidth"


def violations(page: Page) -> list[str]:
    """What axe finds on a page as it is now."""
    page.evaluate(AXE_SCRIPT)
    return page.evaluate(AXE, TAGS)


def open_page(page: Page, name: str) -> None:
    """Show a page of the built site, without a server."""
    assert (SITE / name).is_file(), f"{name} is not built: type make book"
    page.goto((SITE / name).as_uri())


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page in the browser, by day and by night, without a network."""
    context = browser.new_context(  # without motion, a new width is there at once
        color_scheme=request.param, reduced_motion="reduce", offline=True
    )
    yield context.new_page()
    context.close()


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    """A page on a small phone, or on a screen of 1280 pixels that is enlarged four times."""
    context = browser.new_context(viewport={"width": 320, "height": 640}, offline=True)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("page", ["light"], indirect=True)
@pytest.mark.parametrize("name", PAGES)
def test_no_page_violates_wcag(page: Page, name: str) -> None:
    open_page(page, name)
    assert violations(page) == []


@pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
def test_a_chapter_violates_wcag_on_no_screen(page: Page, spoken: Language) -> None:
    open_page(page, f"{spoken.path}{CHAPTER}")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate(TWO_FRAMES)  # in which the page notices that it was resized
        assert violations(page) == [], width
    page.evaluate("document.getElementById('bilingual')?.click()")
    page.evaluate("document.querySelector('.admonition.dropdown .toggle-button').click()")
    page.evaluate("document.querySelector('.languages summary').click()")
    assert page.is_visible(".languages li a")
    assert violations(page) == [], "with everything open"


def test_axe_finds_a_planted_violation(phone: Page) -> None:
    phone.set_content(
        '<html lang="en"><title>t</title><main><h1>h</h1><button></button>'
        '<p style="color: #999; background: #fff">pale</p></main></html>'
    )
    found = violations(phone)
    assert {line.split()[0] for line in found} == {"button-name", "color-contrast"}


@pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
def test_no_page_scrolls_sideways_on_a_phone(phone: Page, spoken: Language) -> None:
    pages = [name for name in PAGES if name != "404.html" or not spoken.path]
    wide = {}
    for name in pages:
        open_page(phone, f"{spoken.path}{name}")
        wide[name] = phone.evaluate(OVERFLOW)
    assert {name: pixels for name, pixels in wide.items() if pixels > 0} == {}


def test_a_planted_wide_element_is_found(phone: Page) -> None:
    open_page(phone, "search.html")
    phone.evaluate("document.querySelector('main').style.minWidth = '400px'")
    assert phone.evaluate(OVERFLOW) > 0


@pytest.mark.parametrize("name", CHAPTERS)
def test_drawings_are_legible_on_a_phone(phone: Page, name: str) -> None:
    open_page(phone, name)
    shown = "images => images.map((image) => [image.src, image.clientWidth])"
    for source, width in phone.eval_on_selector_all(".picture img", shown):
        drawing = Path(unquote(urlparse(source).path)).read_text(encoding="utf-8")
        assert least_width(drawing) > 0
        assert width >= least_width(drawing) or width == 0, source  # 0: in a closed box


def test_letters_decide_how_far_a_drawing_shrinks() -> None:
    drawing = '<svg viewBox="0 0 700 300"><style>a {font-size: 15px} b {font-size: 10px}</style>'
    assert least_width(drawing) == 700 * LEGIBLE / 10
    plot = '<svg viewBox="0 0 400 200"><g transform="translate(1 2) scale(0.1 -0.1)"/>'
    assert least_width(plot) == 400 * LEGIBLE / 10


SENTENCE = re.compile(r"\w[ ,].*\w[ .]|[\u4e00-\u9fff]{3}")  # several words, or Chinese


def wordless(html: str) -> list[str]:
    """The pictures of an article that a blind reader would not know: no words, or a file's name."""
    images = BeautifulSoup(html, "html.parser").select("article :is(img, object, embed, svg)")
    poor = [image for image in images if not SENTENCE.search(str(image.get("alt") or ""))]
    return [str(image)[:200] for image in poor if image.get("aria-hidden") != "true"]


@pytest.mark.site
@pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
def test_every_figure_and_plot_has_alternative_text(spoken: Language) -> None:
    pages = [SITE / spoken.path / name for name in CHAPTERS]
    assert {page.name: wordless(page.read_text(encoding="utf-8")) for page in pages} == {
        page.name: [] for page in pages
    }


def test_a_picture_without_words_is_found() -> None:
    assert wordless('<article><img src="a.svg" alt="plot.svg"></article>')
    assert wordless('<article><p><img src="a.svg"></p></article>')
    assert not wordless('<article><img src="a.svg" alt="Two curves fall"></article>')
