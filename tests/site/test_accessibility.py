"""Every page of the built book: WCAG 2.2 A and AA as far as axe can tell.

All of axe's rules are on, target-size too, which axe leaves out unless asked for.
"""

from collections.abc import Iterator

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page

from book.languages import LANGUAGES, Language
from tests.support import ROOT
from tests.support.built_site import SITE

CHAPTERS = sorted(f"chapters/{path.stem}.html" for path in ROOT.glob("chapters/*.md"))
PAGES = [*CHAPTERS, "404.html", "genindex.html", "py-modindex.html", "search.html"]
CHAPTER = "chapters/devices-and-data.html"  # it has figures, plots, tables, and answers
# The colors are the same in all languages.
TURNS = [(["light", "dark"][number % 2], spoken) for number, spoken in enumerate(LANGUAGES)]
WIDTHS = (320, 768, 1280)
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
AXE = """async (tags) => (await axe.run({
  runOnly: tags, resultTypes: ["violations"], rules: {"target-size": {enabled: true}},
})).violations.flatMap(({id, nodes}) => nodes.map(
  ({target, any, all, none}) => `${id} ${target}: ${[...any, ...all, ...none][0]?.message}`))"""
# Most of axe's time goes into tokens of code. One of each color on each background is enough.
THIN_OUT = """() => {
  const seen = new Set(), known = [];
  for (const token of document.querySelectorAll("pre span:not(:has(*))")) {
    let look = getComputedStyle(token).color;
    for (let each = token; each; each = each.parentElement) {
      const {backgroundColor, opacity} = getComputedStyle(each);
      look += backgroundColor + opacity;
    }
    if (seen.has(look)) known.push(token);
    seen.add(look);
  }
  for (const token of known) token.replaceWith(token.textContent);
}"""
TWO_FRAMES = "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"


def violations(page: Page) -> list[str]:
    """What axe finds on a page as it is now."""
    page.evaluate(THIN_OUT)
    page.evaluate(AXE_SCRIPT)
    return page.evaluate(AXE, TAGS)


def open_page(page: Page, name: str) -> None:
    """Show a page of the built site, without a server."""
    page.goto((SITE / name).as_uri())


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page in the browser, by day and by night, without a network."""
    context = browser.new_context(  # without motion, a new width is there at once
        color_scheme=request.param, reduced_motion="reduce", offline=True
    )
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("page", ["light"], indirect=True)
@pytest.mark.parametrize("name", [name for name in PAGES if name != CHAPTER])
def test_no_page_violates_wcag(page: Page, name: str) -> None:
    open_page(page, name)
    assert violations(page) == []


@pytest.mark.parametrize(("page", "spoken"), TURNS, indirect=["page"])
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


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_axe_finds_a_planted_violation(page: Page) -> None:
    page.set_content(
        '<html lang="en"><title>t</title><main><h1>h</h1><button></button>'
        '<p style="color: #999; background: #fff">pale</p></main></html>'
    )
    found = violations(page)
    assert {line.split()[0] for line in found} == {"button-name", "color-contrast"}
