"""The switch between PyTorch and MXNet: where it stands, where it leads, what it remembers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, BrowserContext, Page

from book.theme.frameworks import pytorch_twin, twin
from book.theme.volume import volume
from book.translation import catalogues
from book.translation.interface import sources
from book.translation.languages import ENGLISH, TRANSLATIONS
from tests.built_site import served, soup
from tests.conftest import ROOT, copy_tiny_book, run_book, translate
from tests.test_accessibility import AXE, OVERFLOW, TAGS
from tests.test_keyboard import FOCUSED, tab_to

PT = TRANSLATIONS[0]
LONG = "\n\n".join(["A paragraph that fills the page with words. " * 20] * 4)
NOTEBOOK = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {name: python3, language: python, display_name: Python 3}
---

"""
PYTORCH = f"""{NOTEBOOK}(sec_towers)=
# Towers

The start, in PyTorch. {LONG}

(sec_shared)=
## A Shared Section

{LONG} See {{ref}}`above <sec_towers>`.

## Only in PyTorch

{LONG}

(sec_below)=
### Below It

{LONG}

(sec_renamed)=
## Named by PyTorch

{LONG}
"""
MXNET = f"""(sec_gluon_towers)=
# Towers in MXNet

The start, in MXNet; its {{ref}}`twin <sec_towers>`, {{ref}}`a part <sec_shared>` of it, and
{{ref}}`more <sec_below>`. {LONG}

## Only in MXNet

{LONG}

(sec_gluon_shared)=
## A Shared Section

{LONG}

(sec_gluon_renamed)=
## Named by MXNet

{LONG}
"""
THIRD = """# Third

The {ref}`towers <sec_towers>`, {ref}`shared <sec_shared>`, {ref}`below <sec_below>`,
{ref}`renamed <sec_renamed>`, [MXNet](gluon/towers.md), and [the second chapter](second.md).

:::{container} keep-framework
PyTorch, whatever you chose: {ref}`kept <sec_towers>`.
:::
"""
# The Gluon page stands far from its twin, which comes between the chapters named second and third.
TOC = """      - file: chapters/towers
      - file: chapters/third
  - caption: MXNet
    chapters:
      - file: chapters/gluon/towers
  - caption: Appendices
    chapters:
      - file: chapters/last
"""
TITLES = {"Towers": "Torres", "A Shared Section": "Uma seção comum", "Framework": "Framework"}
# The buttons of the header that stick out of it, or lie upon each other.
MISPLACED = """() => {
  const header = document.querySelector(".bd-header-article");
  const inner = ":is(.btn, .sidebar-toggle, .frameworks a, summary, #bilingual)";
  const shown = [...header.querySelectorAll(inner)].filter((each) => each.checkVisibility());
  const boxes = [header, ...shown].map((each) => each.getBoundingClientRect());
  const [whole, ...parts] = boxes;
  return shown.filter((_, i) => {
    const box = parts[i];
    return box.left < whole.left || box.right > whole.right || box.top < whole.top
      || box.bottom > whole.bottom || parts.some((other, j) => i !== j
        && box.left < other.right - 1 && other.left < box.right - 1
        && box.top < other.bottom - 1 && other.top < box.bottom - 1);
  }).map((each) => each.outerHTML.slice(0, 80));
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny book with twins, in English and, as to a few words, in Portuguese."""
    folder = copy_tiny_book(tmp_path_factory.mktemp("frameworks") / "book")
    chapters = folder / "chapters"
    (chapters / "gluon").mkdir()
    (chapters / "towers.md").write_text(PYTORCH)
    (chapters / "gluon/towers.md").write_text(MXNET)
    (chapters / "third.md").write_text(THIRD)
    (chapters / "last.md").write_text("# Last\n\nThe end.\n")
    toc = folder / "_toc.yml"
    toc.write_text(toc.read_text().replace("- numbered", "- caption: Chapters\n    numbered") + TOC)
    assert run_book("locales", folder).returncode == 0
    translate(folder, PT, TITLES)
    for spoken in (ENGLISH, PT):
        result = run_book("html", folder, spoken.folder, D2L_MGPU_SOURCE="generated")
        assert result.returncode == 0, result.stdout
    return folder / "_build" / "html"


def new_context(browser: Browser, **settings: object) -> BrowserContext:
    return browser.new_context(
        offline=True,
        reduced_motion="reduce",
        **{"viewport": {"width": 1280, "height": 600}} | settings,
    )


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a new reader's browser, without a server and without a network."""
    context = new_context(browser)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(f"{error.message} {error.stack}"))
    yield page
    context.close()
    # Where a browser blocks storage, scripts of the theme stop; ours must not.
    assert [text for text in errors if "blocked" not in text or "frameworks.js" in text] == []


@pytest.fixture
def show(page: Page, site: Path) -> Callable[..., Page]:
    """Opens a page of the site."""

    def open_page(name: str, query: str = "") -> Page:
        page.goto((site / name).as_uri() + query)
        return page

    return open_page


def choose(page: Page, framework: str) -> None:
    """Click the switch as a mouse does: Playwright's own click may scroll first."""
    link = page.locator(f".frameworks [data-framework={framework}]")
    if link.get_attribute("aria-current"):
        link.dispatch_event("click")
        return
    with page.expect_navigation():
        link.dispatch_event("click")


def targets(page: Page, selector: str) -> list[str]:
    """Where links lead, relative to the site's chapters."""
    found = page.eval_on_selector_all(selector, "links => links.map((link) => link.href)")
    return [address.rpartition("/html/")[2].rpartition("chapters/")[2] for address in found]


def prose(page: Page) -> dict[str, str]:
    """The links in the text of a page: what they say, and where they lead."""
    links = "article section p a:not(.headerlink)"
    texts = page.locator(links).all_inner_texts()
    return dict(zip(texts, targets(page, links), strict=True))


def scroll_to(page: Page, section: str) -> None:
    """Let a reader see a section first."""
    scroll = f"document.getElementById('{section}').scrollIntoView({{behavior: 'instant'}})"
    page.wait_for_function(f"{scroll}, currentSection() === '{section}'")


def test_a_twin_needs_both_pages() -> None:
    docs = {"chapters/a", "chapters/gluon/a", "chapters/b", "chapters/gluon/c"}
    pairs = {name: twin(name, docs) for name in [*docs, "genindex"]}
    assert {name: other for name, other in pairs.items() if other} == {
        "chapters/a": "chapters/gluon/a",
        "chapters/gluon/a": "chapters/a",
    }
    assert pytorch_twin("chapters/gluon/c") == "chapters/c"
    assert pytorch_twin("chapters/b") is pytorch_twin("chapters/gluon") is None


@pytest.mark.parametrize("spoken", [ENGLISH, PT], ids=lambda spoken: spoken.code)
def test_twins_have_the_switch_and_other_pages_have_none(site: Path, spoken) -> None:
    current = {"chapters/towers": "PyTorch", "chapters/gluon/towers": "MXNet"}
    root = site / spoken.path
    for name in ("index", "first", "second", "towers", "third", "gluon/towers", "last"):
        document = f"chapters/{name}"
        switches = soup(root / f"{document}.html").select("nav.frameworks")
        assert len(switches) == (document in current), name
        for switch in switches:
            links = switch.select("a")
            assert [link.get_text() for link in links] == ["PyTorch", "MXNet"]
            assert [link.get_text() for link in links if link.has_attr("aria-current")] == [
                current[document]
            ]
            (own,) = [link["href"] for link in links if link.has_attr("aria-current")]
            (other,) = [link["href"] for link in links if not link.has_attr("aria-current")]
            page = (root / document).parent / other
            assert own == "#"
            assert page.resolve() == (root / f"{twin(document, current)}.html").resolve()


def test_what_twins_share_is_translated_once(site: Path) -> None:
    for name in ("towers", "gluon/towers"):
        section = soup(site / f"pt/chapters/{name}.html").select_one("#a-shared-section h2")
        assert "Uma seção comum" in section.get_text()
    folder = catalogues.folder(site.parent.parent, PT) / "chapters"
    assert catalogues.read(folder / "towers.po", PT).find("A Shared Section")
    assert not catalogues.read(folder / "gluon/towers.po", PT).find("A Shared Section")


def test_the_words_of_the_switch_are_translated() -> None:
    assert "Framework" in {source.text for source in sources()}
    for spoken in TRANSLATIONS:
        path = catalogues.folder(ROOT, spoken) / "interface.po"
        message = catalogues.read(path, spoken).find("Framework")
        assert message and catalogues.state(message) == "translated"


@pytest.mark.parametrize(
    "path, here, section, there",
    [
        ("", "towers", "", "gluon/towers.html"),
        ("", "towers", "a-shared-section", "gluon/towers.html#a-shared-section"),
        ("", "towers", "below-it", "gluon/towers.html#a-shared-section"),
        ("", "towers", "named-by-pytorch", "gluon/towers.html#named-by-mxnet"),
        ("", "gluon/towers", "", "towers.html"),
        ("", "gluon/towers", "only-in-mxnet", "towers.html"),
        ("pt/", "towers", "a-shared-section", "gluon/towers.html#a-shared-section"),
        ("pt/", "gluon/towers", "named-by-mxnet", "towers.html#named-by-pytorch"),
    ],
)
def test_the_switch_keeps_the_section_or_the_nearest_before_it(
    show, path: str, here: str, section: str, there: str
) -> None:
    page = show(f"{path}chapters/{here}.html")
    if section:
        scroll_to(page, section)
    choose(page, "pytorch" if "gluon" in here else "mxnet")
    page.wait_for_url(re.compile(rf"/html/{path}chapters/{re.escape(there)}$"))


def test_the_switch_works_without_javascript(browser: Browser, site: Path) -> None:
    context = new_context(browser, java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "chapters/towers.html").as_uri())
    page.click(".frameworks >> text=MXNet")
    page.wait_for_url("**/chapters/gluon/towers.html")
    page.click(".frameworks >> text=PyTorch")
    page.wait_for_url("**/html/chapters/towers.html")
    context.close()


def test_before_a_choice_links_lead_where_they_say(show) -> None:
    page = show("chapters/third.html")
    assert prose(page) == {
        "towers": "towers.html#sec-towers",
        "shared": "towers.html#sec-shared",
        "below": "towers.html#sec-below",
        "renamed": "towers.html#sec-renamed",
        "MXNet": "gluon/towers.html",
        "the second chapter": "second.html",
        "kept": "towers.html#sec-towers",
    }


def test_the_choice_is_remembered_on_every_page(show) -> None:
    choose(show("chapters/towers.html"), "mxnet")
    page = show("chapters/third.html")
    assert prose(page) == {
        "towers": "gluon/towers.html",
        "shared": "gluon/towers.html#a-shared-section",
        "below": "towers.html#sec-below",  # MXNet has nothing of the kind
        "renamed": "gluon/towers.html#named-by-mxnet",
        "MXNet": "gluon/towers.html",
        "the second chapter": "second.html",
        "kept": "towers.html#sec-towers",
    }
    assert targets(page, ".bd-docs-nav a[href*=towers]") == ["gluon/towers.html"] * 2
    assert targets(page, "a.left-prev") == ["gluon/towers.html"]
    assert targets(page, ".languages a") == ["third.html"] * 4
    page = show("chapters/second.html")
    page.click("a.right-next")
    page.wait_for_url("**/chapters/gluon/towers.html")


def test_switching_back_restores_the_links(show) -> None:
    choose(show("chapters/towers.html"), "mxnet")
    page = show("chapters/third.html")
    page.click("article a >> text=shared")
    page.wait_for_url("**/chapters/gluon/towers.html#a-shared-section")
    choose(page, "pytorch")
    page.wait_for_url("**/html/chapters/towers.html#a-shared-section")
    page = show("chapters/third.html")
    assert prose(page)["shared"] == "towers.html#sec-shared"
    assert targets(page, "a.left-prev") == ["towers.html"]


def test_going_back_shows_a_page_whose_links_follow_the_choice(show) -> None:
    choose(show("chapters/towers.html"), "mxnet")
    page = show("chapters/third.html")
    page.click("a.left-prev")
    page.wait_for_url("**/chapters/gluon/towers.html")
    choose(page, "pytorch")
    page.wait_for_url("**/html/chapters/towers.html")
    page.go_back()
    page.go_back()
    page.wait_for_url("**/chapters/third.html")
    page.wait_for_function(
        "document.querySelector('a.left-prev').href.endsWith('chapters/towers.html')"
    )
    assert "gluon" not in targets(page, "a.left-prev")[0]


def test_another_window_follows_the_choice(show, site: Path) -> None:
    page = show("chapters/third.html")
    other = page.context.new_page()
    other.goto((site / "chapters/towers.html").as_uri())
    written = prose(page)
    choose(other, "mxnet")
    page.wait_for_function("document.querySelector('a.left-prev').href.includes('gluon')")
    choose(other, "pytorch")
    page.wait_for_function("!document.querySelector('a.left-prev').href.includes('gluon')")
    assert prose(page) == written


def test_the_choice_is_remembered_across_languages(show) -> None:
    choose(show("chapters/towers.html"), "mxnet")
    page = show("chapters/gluon/towers.html")
    scroll_to(page, "a-shared-section")
    page.dispatch_event(".languages a[lang=pt-BR]", "click")
    page.wait_for_url("**/pt/chapters/gluon/towers.html#a-shared-section")
    page = show("pt/chapters/third.html")
    page.click("article a >> text=shared >> nth=0")
    page.wait_for_url("**/pt/chapters/gluon/towers.html#a-shared-section")


def test_an_address_is_honored(show) -> None:
    choose(show("chapters/towers.html"), "mxnet")
    page = show("chapters/towers.html")
    assert page.locator(".frameworks [aria-current]").inner_text() == "PyTorch"
    assert "start, in PyTorch" in page.locator("article").inner_text()
    page.click("article a >> text=above")  # within the page, whatever was chosen
    page.wait_for_url("**/html/chapters/towers.html#sec-towers")
    page = show("chapters/third.html")  # and it was no choice
    assert prose(page)["towers"] == "gluon/towers.html"


def test_the_choice_of_the_page_that_is_open_changes_its_links_only(show) -> None:
    choose(show("chapters/towers.html"), "mxnet")
    page = show("chapters/towers.html")
    address = page.url
    choose(page, "pytorch")
    assert page.url == address
    assert page.evaluate("localStorage.getItem('framework')") == "pytorch"


@pytest.mark.parametrize("chosen", [None, "mxnet"])
def test_an_mxnet_page_leads_to_mxnet_but_names_its_twin(show, chosen: str | None) -> None:
    if chosen:
        choose(show("chapters/towers.html"), chosen)
    page = show("chapters/gluon/towers.html")
    assert prose(page) == {
        "twin": "towers.html#sec-towers",
        "a part": "gluon/towers.html#a-shared-section",
        "more": "towers.html#sec-below",
    }


def test_an_mxnet_page_leads_to_pytorch_for_whom_has_chosen_that(show) -> None:
    choose(show("chapters/gluon/towers.html"), "pytorch")
    page = show("chapters/gluon/towers.html")
    assert prose(page)["a part"] == "towers.html#sec-shared"


def test_an_mxnet_page_stands_at_the_place_of_its_twin(show) -> None:
    ways = {"gluon/towers": ("second", "third"), "third": ("towers", "last"), "last": ("third", "")}
    for name, (before, after) in ways.items():
        page = show(f"chapters/{name}.html")
        assert targets(page, "a.left-prev") == [f"{before}.html"]
        assert targets(page, "a.right-next") == ([f"{after}.html"] if after else [])


def test_the_results_of_a_search_are_what_they_say(show) -> None:
    choose(show("chapters/towers.html"), "mxnet")
    page = show("search.html", "?q=towers")
    page.wait_for_function("Search.title && !Search.title.contains(Search.dots)")
    assert {"towers.html", "gluon/towers.html"} <= {
        address.partition("#")[0].partition("?")[0]
        for address in targets(page, "#search-results li a")
    }


def test_where_nothing_can_be_stored_the_switch_still_leads_to_the_twin(page: Page, show) -> None:
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('blocked'); }})"
    )
    show("chapters/towers.html")
    scroll_to(page, "a-shared-section")
    choose(page, "mxnet")
    page.wait_for_url("**/chapters/gluon/towers.html#a-shared-section")
    show("chapters/third.html")
    assert prose(page)["towers"] == "towers.html#sec-towers"


def test_the_switch_works_by_keyboard(show) -> None:
    page = show("chapters/towers.html")
    tab_to(page, ".frameworks [data-framework=mxnet]")
    stop = page.evaluate(FOCUSED)
    assert stop["seen"] and stop["inside"] and not stop["covered"]
    page.keyboard.press("Enter")
    page.wait_for_url("**/chapters/gluon/towers.html")
    assert page.evaluate("localStorage.getItem('framework')") == "mxnet"


@pytest.mark.parametrize(
    "width, scheme", [(320, "light"), (360, "dark"), (768, "dark"), (1280, "light")]
)
@pytest.mark.parametrize("name", ["chapters/towers.html", "pt/chapters/gluon/towers.html"])
def test_the_switch_is_in_sight_and_accessible(
    browser: Browser, site: Path, name: str, scheme: str, width: int
) -> None:
    touch = width < 768
    context = new_context(
        browser,
        color_scheme=scheme,
        viewport={"width": width, "height": 800},
        has_touch=touch,
        is_mobile=touch,
    )
    page = context.new_page()
    page.goto((site / name).as_uri())
    page.evaluate(AXE_SCRIPT)
    found = [line for line in page.evaluate(AXE, TAGS) if "frameworks" in line]
    assert found == []
    for scrolled in (0, 2000):
        page.evaluate("y => scrollTo({top: y, behavior: 'instant'})", scrolled)
        for link in page.locator(".frameworks a").all():
            box = link.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width
            assert box["y"] >= 0 and box["y"] + box["height"] < 200
            assert link.is_visible() and (not touch or box["height"] >= 44)
    assert page.evaluate(MISPLACED) == []
    assert page.evaluate(OVERFLOW) <= 0
    context.close()


def test_a_planted_button_out_of_place_is_found(show) -> None:
    page = show("chapters/towers.html")
    assert page.evaluate(MISPLACED) == []
    page.add_style_tag(
        content=".frameworks { transform: translateX(-3rem); transition: none !important }"
    )
    assert len(page.evaluate(MISPLACED)) >= 2


def test_the_summary_of_a_result_is_of_the_article(page: Page, site: Path) -> None:
    page.context.set_offline(False)
    with served(site) as base:
        page.goto(f"{base}search.html?q=start")
        summary = page.locator("#search-results li:has(a[href*='chapters/towers']) p.context")
        summary.wait_for()
        assert summary.inner_text().startswith("3. Towers")
    page.context.set_offline(True)


def test_paper_does_not_show_the_switch(show, site: Path) -> None:
    printed = volume(site.parent.parent, ENGLISH)
    assert "data-framework" not in printed.html and printed.broken == []
    ids = [tag["id"] for tag in BeautifulSoup(printed.html, "html.parser").find_all(id=True)]
    assert len(ids) == len(set(ids))
    page = show("chapters/towers.html")
    page.emulate_media(media="print")
    assert not page.is_visible(".frameworks")
