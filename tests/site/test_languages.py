"""Pages in several languages: what is shown of each translation, and the ways between them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from bs4 import BeautifulSoup, Tag
from playwright.sync_api import Browser, Page

from book.config import addresses as addresses_in
from book.languages import LANGUAGES, TRANSLATIONS
from book.translation import catalogues
from tests.support import ROOT
from tests.support.built_site import soup, watched
from tests.support.snippets import IMAGE, SNIPPETS
from tests.support.tiny_book import copy_tiny_book, edit, run_book, translate

pytestmark = pytest.mark.site
PT, _, ZH = TRANSLATIONS
SITE = addresses_in(ROOT).site
PORTUGUESE = {
    "A tiny book": "Um livrinho",
    "Chapters": "Capítulos",
    "The {ref}`first chapter <first>` explains everything; see {numref}`fig-towers`.": (
        "O {ref}`primeiro capítulo <first>` explica tudo; veja {numref}`fig-towers`."
    ),
    "one": "um",
    "CPU": "Processador",
    "Fig. %s": "Figura %s",
    "Numbers": "Números",
    "A second paragraph.": "Um segundo parágrafo.",
    "Two *towers*, with $x_1$.": "Duas *torres*, com $x_1$.",
    "Two boxes side by side": "Duas caixas lado a lado",
    "Hint": "Dica",
    "Think of **means**.": "Pense em **médias**.",
    "Look at {ref}`first`.": "Veja {ref}`first`.",
    "Left": "Esquerda",
}
# What somebody may write into any kind of text; one title is short, to be searched for.
EVERYTHING = " ".join(SNIPPETS.values())
MALICIOUS = dict.fromkeys(
    [
        *("Towers & prices", "Chapters", "one", "two with `code`", "Two boxes side by side"),
        *("A second paragraph.", "Think of **means**.", "Bytes of each split", "split"),
        *("CPU", "Slow.", "More", "Hidden text.", "A copy of the model.", "A quotation.", "Left"),
    ],
    EVERYTHING,
) | {"Numbers": f"数 {IMAGE}"}
DRAWING = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10"><title>Left</title>'
    '<text class="code">left()</text></svg>\n'
)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny book, partly in Portuguese: one paragraph became stale, most of it is missing.

    The Chinese is by somebody who would run code in readers' browsers.
    """
    folder = copy_tiny_book(tmp_path_factory.mktemp("languages") / "book")
    (folder / "chapters/img/towers.svg").write_text(DRAWING)
    (folder / "chapters/status.md").write_text("# Status\n\n```{translation-status}\n```\n")
    toc = folder / "_toc.yml"
    toc.write_text(toc.read_text().replace("- numbered: 2", "- caption: Chapters\n    numbered: 2"))
    toc.write_text(toc.read_text() + "      - file: chapters/status\n")
    assert run_book("locales", folder).returncode == 0
    translate(folder, PT, PORTUGUESE)
    translate(folder, ZH, MALICIOUS)
    header = catalogues.folder(folder, ZH) / "chapters/first.po"
    edit(header, "Revision-Date: 20", "Revision-Date: <b id=x>")
    chapter = folder / "chapters/first.md"
    changed = chapter.read_text().replace("A second paragraph.", "A second paragraph, changed.")
    chapter.write_text(changed)
    assert run_book("locales", folder).returncode == 0
    index = folder / "chapters/index.md"
    index.write_text(index.read_text().replace("- one\n", "- one or more\n"))
    for command in ("html", "notebooks"):
        result = run_book(command, folder, D2L_MGPU_SOURCE="generated")
        assert result.returncode == 0, result.stdout
        (folder / f"{command}.log").write_text(result.stdout)
    return folder


def paragraph(page: BeautifulSoup, text: str) -> Tag:
    (found,) = [p for p in page.find_all("p") if p.get_text().startswith(text)]
    return found


def test_the_other_languages_execute_nothing(book: Path) -> None:
    log = (book / "html.log").read_text()
    counts = re.findall(r"(\d+) chapters executed", log)
    assert counts == ["2", "0", "0", "0"]
    assert re.findall(r"^(\S.*): \d+ s, [\d.]+ times the English build", log, re.MULTILINE)


@pytest.mark.parametrize("spoken", LANGUAGES, ids=lambda spoken: spoken.code)
def test_a_page_says_its_language_and_names_the_others(book: Path, spoken) -> None:
    page = soup(book / "_build/html" / f"{spoken.path}chapters/first.html")
    assert page.html["lang"] == spoken.tag
    alternates = {link["hreflang"]: link["href"] for link in page.select("link[hreflang]")}
    assert alternates == {
        each.tag: f"{SITE}/{each.path}chapters/first.html" for each in LANGUAGES
    } | {"x-default": f"{SITE}/chapters/first.html"}
    assert page.select_one("link[rel=canonical]")["href"] == alternates[spoken.tag]
    for link in page.select(".languages a"):
        target = book / f"_build/html/{spoken.path}chapters" / link["href"]
        assert target.resolve().is_file()
        assert link["lang"] == link["hreflang"] in {each.tag for each in LANGUAGES}
    current = page.select_one(".languages a[aria-current]")
    assert current["lang"] == spoken.tag


def test_everything_of_a_page_is_translated(book: Path) -> None:
    index, first = (
        soup(book / "_build/html" / "pt/chapters/index.html"),
        soup(book / "_build/html" / "pt/chapters/first.html"),
    )
    assert index.title.get_text(strip=True).startswith("Um livrinho")
    description = index.select_one("meta[name=description]")["content"]
    assert description.startswith("O primeiro capítulo explica tudo; veja Figura 1.1")
    assert "Capítulos" in index.select_one("nav.bd-links").get_text()
    assert first.select_one("#numbers > h2").get_text().startswith("1.1. Números")
    assert first.select_one(".admonition-title").get_text(strip=True) == "Dica"
    assert "Duas torres" in first.select_one("figcaption").get_text()
    assert first.select_one("figure img")["alt"] == "Duas caixas lado a lado"


def test_a_figure_has_its_words_in_the_language_and_its_code_in_english(book: Path) -> None:
    source = soup(book / "_build/html" / "pt/chapters/first.html").select_one("figure img")["src"]
    drawing = (book / "_build/html/pt/chapters" / source).read_text()
    assert "<title>Esquerda</title>" in drawing
    assert "left()" in drawing and 'lang="pt-BR"' in drawing


def test_a_translated_paragraph_carries_its_english(book: Path) -> None:
    page = soup(book / "_build/html" / "pt/chapters/index.html")
    original = paragraph(page, "O primeiro").find_next_sibling(class_="original")
    assert original["lang"] == "en" and original.name == "div"
    assert original.get_text().startswith("The first chapter explains everything")
    assert [a["href"] for a in original.select("a")] == [
        a["href"] for a in paragraph(page, "O primeiro").select("a")
    ]


def test_the_english_names_sections_and_figures_in_english(book: Path) -> None:
    page = soup(book / "_build/html" / "pt/chapters/first.html")
    original = paragraph(page, "Veja").find_next_sibling(class_="original")
    assert original.get_text() == "Look at Towers & prices."
    page = soup(book / "_build/html" / "pt/chapters/index.html")
    assert "veja Figura 1.1" in paragraph(page, "O primeiro").get_text()
    assert "see Fig. 1.1" in page.select_one(".original a[href*=towers]").parent.get_text()


def test_a_tab_has_its_label_in_the_language(book: Path) -> None:
    labels = soup(book / "_build/html" / "pt/chapters/first.html").select(".sd-tab-label")
    assert labels[0].get_text().strip().startswith("Processador")


def test_an_edited_paragraph_is_stale_before_anyone_merged_the_catalogues(book: Path) -> None:
    page = soup(book / "_build/html" / "pt/chapters/index.html")
    item = page.select_one("article section > ul > li")
    assert "um" in item.get_text()
    details = item.find("details")
    assert details.select_one("[lang=en]").get_text() == "one or more"


def test_a_stale_paragraph_is_marked_and_shows_the_new_english_on_demand(book: Path) -> None:
    page = soup(book / "_build/html" / "pt/chapters/first.html")
    stale = paragraph(page, "Um segundo parágrafo.")
    assert "stale" in stale["class"]
    details = stale.find_next_sibling("details")
    assert details.select_one("[lang=en]").get_text() == "A second paragraph, changed."
    assert not details.has_attr("open")


def test_a_missing_paragraph_is_marked_english(book: Path) -> None:
    missing = paragraph(soup(book / "_build/html" / "pt/chapters/first.html"), "The parts cost")
    assert missing["lang"] == "en" and "missing" in missing["class"]


def test_the_english_pages_carry_no_marks(book: Path) -> None:
    page = soup(book / "_build/html" / "chapters/first.html")
    assert not page.select(".original, .stale, .missing, #bilingual, .translation-credit")


def test_a_page_credits_its_translation(book: Path) -> None:
    credit = soup(book / "_build/html" / "pt/chapters/first.html").select_one(".translation-credit")
    assert re.search(r"d2l-mgpu.*\d{4}-\d\d-\d\d", credit.get_text())


def test_the_search_of_a_translation_does_not_find_the_english_beside_it(book: Path) -> None:
    text = (book / "_build/html/pt/searchindex.js").read_text()
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    assert any(term.startswith("explic") for term in index["terms"])
    assert not any(term.startswith("explain") for term in index["terms"])


@pytest.mark.parametrize("spoken", TRANSLATIONS, ids=lambda spoken: spoken.code)
def test_links_stay_in_the_language(book: Path, spoken) -> None:
    root = (book / "_build/html" / spoken.folder).resolve()
    for path in root.glob("chapters/*.html"):
        for link in BeautifulSoup(path.read_text(), "html.parser").select("a[href]"):
            address = link["href"].partition("#")[0]
            if ":" in address or not address or link.find_parent(class_="languages"):
                continue
            target = (path.parent / address).resolve()
            assert target.is_relative_to(root), address
            assert target.is_file() or "notebooks" in target.parts, address


def test_the_status_page_counts_the_catalogues(book: Path) -> None:
    page = soup(book / "_build/html" / "chapters/status.html")
    portuguese, vietnamese, _ = page.select("table")
    rows = {
        row.select_one("td").get_text(strip=True): [td.get_text(strip=True) for td in row("td")]
        for row in portuguese.select("tbody tr")
    }
    catalogue = catalogues.read(catalogues.folder(book, PT) / "chapters/first.po", PT)
    states = [catalogues.state(message) for message in catalogue]
    counted = [str(states.count(state)) for state in ("translated", "stale", "missing")]
    assert rows["Towers & prices"][1:4] == counted
    assert counted[1] == "1"
    assert {row("td")[1].get_text(strip=True) for row in vietnamese.select("tbody tr")} == {"0"}


def test_the_page_of_a_wrong_address_speaks_all_languages(book: Path) -> None:
    page = soup(book / "_build/html" / "404.html")
    sections = {section["lang"]: section.a["href"] for section in page("section")}
    assert sections == {each.tag: f"{SITE}/{each.path}chapters/index.html" for each in LANGUAGES}


def test_a_notebook_shows_the_new_english_below_a_stale_paragraph(book: Path) -> None:
    notebook = (book / "_build/notebooks/pt/first.ipynb").read_text()
    assert re.search(
        r"Um segundo parágrafo.*?<details>.*?A second paragraph, changed", notebook, re.S
    )
    assert "Think of **means**" not in notebook
    assert (book / "_build/notebooks/pt/img/towers.svg").is_file()


def handlers(page: BeautifulSoup) -> set[tuple[str, str, str]]:
    """The attributes of a page that run code."""
    return {
        (tag.name, name, str(value))
        for tag in page.find_all(True)
        for name, value in tag.attrs.items()
        if name.startswith("on") or str(value).lower().startswith(("javascript:", "data:text"))
    }


@pytest.mark.parametrize("name", ["first", "index"])
def test_what_a_translation_says_is_text(book: Path, name: str) -> None:
    page, harmless = (
        soup(book / f"_build/html/{spoken.path}chapters/{name}.html") for spoken in (ZH, PT)
    )
    assert handlers(page) == handlers(harmless)
    for element in ("script", "style", "iframe", "meta[http-equiv]", "svg", "b"):
        assert len(page.select(element)) == len(harmless.select(element)), element
    assert IMAGE in page.select_one("nav.bd-links").get_text()
    assert IMAGE in page.select_one("article").get_text()


def test_a_translation_runs_no_code_in_a_page_or_in_the_search(
    browser: Browser, book: Path
) -> None:
    site = (book / "_build/html/zh").as_uri()
    with watched(browser, f"{(book / '_build/html').as_uri()}/") as (page, problems):
        page.add_init_script("window.planted = () => console.error('planted code ran')")
        page.goto(f"{site}/chapters/first.html")
        page.wait_for_load_state()
        page.goto(f"{site}/search.html?q={quote(IMAGE)}")
        page.wait_for_selector("#search-results li")
        assert IMAGE in page.inner_text("#search-results")
        assert "planted" not in " ".join(problems)


@pytest.fixture
def page(browser: Browser, book: Path) -> Iterator[Page]:
    """A page of the tiny book in the browser, without a server and without a network."""
    context = browser.new_context(viewport={"width": 1000, "height": 500}, offline=True)
    page = context.new_page()
    page.goto((book / "_build/html/pt/chapters/first.html").as_uri())
    yield page
    context.close()


def test_the_english_is_off_until_the_switch_is_pressed_and_then_remembered(page: Page) -> None:
    assert not page.is_visible("div.original")
    button = page.locator("#bilingual")
    button.focus()
    page.keyboard.press("Space")
    assert button.get_attribute("aria-pressed") == "true"
    assert page.is_visible("div.original")
    page.goto(page.url.replace("first", "index"))
    assert page.is_visible("div.original")
    page.locator("#bilingual").focus()
    page.keyboard.press("Enter")
    assert not page.is_visible("div.original")
    page.reload()
    assert not page.is_visible("div.original")


def test_the_switch_leaves_in_place_what_the_reader_sees(page: Page) -> None:
    cell = page.locator("div.cell_input").last
    cell.evaluate("cell => window.scrollBy(0, cell.getBoundingClientRect().top - 150)")
    before, width = cell.bounding_box(), cell.evaluate("cell => cell.scrollWidth")
    page.locator("#bilingual").evaluate("button => button.click()")
    after = cell.bounding_box()
    assert abs(after["y"] - before["y"]) < 2
    assert (after["width"], after["height"]) == (before["width"], before["height"])
    assert cell.evaluate("cell => cell.scrollWidth") == width


def test_another_language_opens_at_the_same_section(page: Page) -> None:
    scroll = "document.getElementById('numbers').scrollIntoView({behavior: 'instant'})"
    page.wait_for_function(f"{scroll}, currentSection() === 'numbers'")
    # Playwright's own click would first scroll, because the header is sticky; a mouse does not.
    page.dispatch_event(".languages summary", "click")
    page.dispatch_event(".languages a[lang=vi]", "click")
    page.wait_for_url(re.compile(r"/vi/chapters/first\.html#numbers$"))
    assert page.evaluate("document.documentElement.lang") == "vi"


def test_the_menu_of_languages_works_by_keyboard(page: Page) -> None:
    page.locator(".languages summary").focus()
    page.keyboard.press("Enter")
    assert page.is_visible(".languages a[lang=en]")
    page.keyboard.press("Escape")
    assert not page.is_visible(".languages a[lang=en]")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"html/chapters/first\.html"))


def test_a_stale_paragraph_opens_by_keyboard(page: Page) -> None:
    page.locator("details.original summary").focus()
    page.keyboard.press("Enter")
    assert page.is_visible("text=A second paragraph, changed.")
