"""Every page in every language, opened once, without a network and on a phone.

Nothing is missing, nothing sticks out, drawings are legible, and a picture has words for the blind.
"""

import re
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from playwright.sync_api import Browser, Page

from book.languages import LANGUAGES, Language
from book.theme.legible_drawings import LEGIBLE, least_width
from tests.support.built_site import SITE, load_everything, pages, watched

FILES = f"{SITE.as_uri()}/"
PHONE = {"width": 320, "height": 640}  # or a screen of 1280 pixels that is enlarged four times
WORDS = re.compile(r"\w[ ,].*\w[ .]|[\u4e00-\u9fff]{3}")  # several words, or Chinese
OVERFLOW = "document.scrollingElement.scrollWidth - innerWidth"
DRAWINGS = "images => images.map((image) => [image.src, image.clientWidth])"
# Not those of buttons, nor the signs with which Sphinx folds the index of modules.
PICTURES = """article :is(img, object, embed, svg):not(button *, .toggler, [aria-hidden="true"])"""
HTML_AND_WORDS = """pictures => pictures.map(
  (picture) => [picture.outerHTML.slice(0, 200), picture.getAttribute("alt") ?? ""])"""


def illegible(page: Page) -> list[str]:
    """The drawings of a page that shrink until their letters are too small."""
    found = []
    for source, width in page.eval_on_selector_all(".picture img", DRAWINGS):
        least = least_width(Path(unquote(urlparse(source).path)).read_text(encoding="utf-8"))
        if not least or 0 < width < least:  # 0: in a closed box
            found.append(f"{source} is {width} pixels wide, its letters need {least:.0f}")
    return found


def wordless(page: Page) -> list[str]:
    """The pictures that a blind reader would not know: no words, or a file's name."""
    pictures = page.eval_on_selector_all(PICTURES, HTML_AND_WORDS)
    return [f"no words: {html}" for html, words in pictures if not WORDS.search(words)]


def defects(page: Page) -> list[str]:
    """What is wrong with the open page on a phone."""
    wide = page.evaluate(OVERFLOW)
    sideways = [f"scrolls sideways by {wide} pixels"] if wide > 0 else []
    return [*sideways, *illegible(page), *wordless(page)]


@pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
def test_every_page_works_from_a_folder_and_fits_on_a_phone(
    browser: Browser, spoken: Language
) -> None:
    others = tuple(each.path for each in LANGUAGES if each.path and each is not spoken)
    own = [page for page in pages() if page.startswith(spoken.path) and not page.startswith(others)]
    assert len(own) > 8
    found = {}
    with watched(browser, FILES, viewport=PHONE) as (page, problems):
        for name in own:
            page.goto(FILES + name)
            if Path(name).name == "index.html" and "chapters" not in name:
                page.wait_for_url("**/chapters/index.html")  # where the root leads
            load_everything(page)
            found[name] = [*problems, *defects(page)]
            problems.clear()
    assert {name: each for name, each in found.items() if each} == {}


def test_on_a_screen_of_1280_pixels_no_code_is_cut_off(browser: Browser) -> None:
    """Code and output are the same in every language."""
    cut = """all => all.filter((each) => each.scrollWidth > each.clientWidth)
      .map((each) => each.innerText)"""
    with watched(browser, FILES, viewport={"width": 1280, "height": 800}) as (page, _):
        for name in (each for each in pages() if each.startswith("chapters/")):
            page.goto(FILES + name)
            page.eval_on_selector_all("details", "all => all.forEach((each) => each.open = true)")
            page.add_style_tag(content=".toggle-hidden > * { display: block !important }")
            assert page.eval_on_selector_all(".cell_input pre", cut) == [], name


PLANTED = {
    '<main style="width: 400px">wide</main>': "scrolls sideways by 80 pixels",
    '<p class="picture"><img src="a.svg" width="100"></p>': "a.svg is 100 pixels wide",
    '<article><img src="a.svg" alt="plot.svg"></article>': 'no words: <img src="a.svg"',
    '<article><p><img src="a.svg"></p></article>': 'no words: <img src="a.svg"',
    '<article><img src="a.svg" alt="Two curves fall"></article>': "",
}


@pytest.mark.parametrize(("body", "said"), PLANTED.items())
def test_a_planted_defect_is_found(browser: Browser, tmp_path: Path, body: str, said: str) -> None:
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 300">%s</svg>'
    (tmp_path / "a.svg").write_text(drawing % "<style>a {font-size: 15px}</style>")
    (tmp_path / "page.html").write_text(f'<body style="margin: 0">{body}')
    with watched(browser, tmp_path.as_uri(), viewport=PHONE) as (page, problems):
        page.goto((tmp_path / "page.html").as_uri())
        load_everything(page)
        (found,) = defects(page) or [""]
    assert said in found and bool(said) == bool(found) and not problems


def test_letters_decide_how_far_a_drawing_shrinks() -> None:
    drawing = '<svg viewBox="0 0 700 300"><style>a {font-size: 15px} b {font-size: 10px}</style>'
    assert least_width(drawing) == 700 * LEGIBLE / 10
    plot = '<svg viewBox="0 0 400 200"><g transform="translate(1 2) scale(0.1 -0.1)"/>'
    assert least_width(plot) == 400 * LEGIBLE / 10
