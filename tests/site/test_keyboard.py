"""Everything that a mouse does on a page, the keyboard does, and one sees where it is."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.built_site import SITE

# The focused element, whether something shows that it is, and whether it lies within the window.
# The ring and the scrolling come with one of the next frames, so it looks at up to thirty.
FOCUSED = """async () => {
  function look() {
    const element = document.activeElement, box = element.getBoundingClientRect();
    const rings = [element, ...element.children].flatMap(
      (each) => [null, "::before"].map((pseudo) => getComputedStyle(each, pseudo)));
    const outlined = ({outlineStyle, outlineWidth, boxShadow}) =>
      (outlineStyle !== "none" && parseFloat(outlineWidth) >= 1) || boxShadow !== "none";
    const title = element.closest(".admonition-title");
    const seen = [...rings, ...(title ? [getComputedStyle(title, "::before")] : [])].some(outlined);
    return {
      name: `${element.tagName}.${element.className} ${element.textContent.trim().slice(0, 30)}`,
      seen: seen && Number(getComputedStyle(element).opacity) > 0,
      inside: box.bottom > 0 && box.top < innerHeight,
      covered: Boolean(document.querySelector(".bd-header-article")) &&
        !element.closest(".bd-header-article, dialog, #pst-skip-link, .bd-sidebar") &&
        box.bottom < document.querySelector(".bd-header-article").getBoundingClientRect().bottom,
    };
  }
  for (let frame = 0; ; frame++) {
    const stop = look();
    if ((stop.seen && stop.inside && !stop.covered) || frame === 30) return stop;
    await new Promise(requestAnimationFrame);
  }
}"""


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page of the built site, without a server, where motion would disturb."""
    contexts = []

    def show(name: str, width: int = 1280) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, reduced_motion="reduce", offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.goto((SITE / name).as_uri())
        return page

    yield show
    for context in contexts:
        context.close()


def tab_to(page: Page, selector: str, limit: int = 120) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(limit):
        page.keyboard.press("Tab")
        if page.evaluate("s => document.activeElement.matches(s)", selector):
            return
    raise AssertionError(f"Tab does not reach {selector}")


def unseen(page: Page, limit: int = 400) -> list[str]:
    """The stops of Tab, once around the page, where one does not see the focus."""
    poor = []
    for number in range(limit):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            assert number > 10, "so few stops that Tab never was in the page"
            return poor
        stop = page.evaluate(FOCUSED)
        if not stop["seen"] or not stop["inside"] or stop["covered"]:
            poor.append(str(stop))
    raise AssertionError(f"more than {limit} stops")


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("name", ["zh/chapters/index.html", "chapters/devices-and-data.html"])
def test_the_focus_is_seen_everywhere(open_page, name: str, width: int) -> None:
    page = open_page(name, width)
    assert unseen(page) == []


def test_a_planted_stop_without_an_outline_is_found(open_page) -> None:
    page = open_page("search.html")
    page.add_style_tag(content="a:focus-visible { outline: none !important; box-shadow: none }")
    assert unseen(page)


def test_the_first_stop_skips_to_the_text(open_page) -> None:
    page = open_page("chapters/index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.skip-link').offsetTop >= 0")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_search_works_by_keyboard(open_page) -> None:
    page = open_page("chapters/index.html")
    page.keyboard.press("Control+k")
    page.wait_for_function("document.activeElement.name === 'q'")
    page.keyboard.type("all-reduce")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=*")
    page.wait_for_selector("#search-results li a")
    tab_to(page, "#search-results li a")
    page.keyboard.press("Enter")
    page.wait_for_url("**/chapters/*.html*")


def test_code_is_copied_without_prompts(open_page) -> None:
    page = open_page("chapters/devices-and-data.html")
    page.evaluate("""document.addEventListener("copy", (event) => {
      window.copied = event.target.value ?? String(getSelection());
    }, true)""")
    cell = page.locator("div.cell_input:visible").first  # the imports are folded
    tab_to(page, "div.cell_input .copybtn")
    assert page.evaluate("getComputedStyle(document.activeElement).opacity") == "1"
    name = page.evaluate("document.activeElement.ariaLabel")
    assert name == "Copy"
    page.keyboard.press("Enter")
    page.wait_for_function("window.copied")
    copied = page.evaluate("window.copied")
    assert copied.strip() == cell.locator("pre").text_content().strip()
    assert not any(line.startswith((">>>", "$ ", "In [")) for line in copied.splitlines())
    page.wait_for_function("document.querySelector('[role=status]').textContent === 'Copied!'")


def test_an_answer_opens_by_keyboard(open_page) -> None:
    page = open_page("zh/chapters/devices-and-data.html")
    answer = page.locator(".admonition.dropdown").first
    button = answer.locator("button.toggle-button")
    text = answer.locator(".admonition-title ~ :is(p, div):not(.original)").first
    hint = button.get_attribute("data-toggle-hint")
    title = answer.locator(".admonition-title").text_content().strip()
    assert not hint.isascii()
    assert button.get_attribute("aria-label") == f"{title}: {hint}"
    assert not text.is_visible()
    button.focus()
    for shown in (True, False):
        page.keyboard.press("Enter")
        assert text.is_visible() is shown
        assert button.get_attribute("aria-expanded") == str(shown).lower()


def test_the_buttons_of_the_header_work_by_keyboard(open_page) -> None:
    page = open_page("chapters/index.html")
    themes = set()
    for _ in range(2):
        page.locator(".theme-switch-button:visible").press("Enter")
        themes.add(page.evaluate("document.documentElement.dataset.theme"))
    assert themes == {"light", "dark"}
    menu = page.locator(".dropdown-launch-buttons .dropdown-menu")
    page.locator(".dropdown-launch-buttons button").press("Enter")
    expect(menu).to_be_visible()
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    page.locator(".primary-toggle").press("Enter")
    expect(page.locator("#pst-primary-sidebar")).to_be_hidden()


@pytest.mark.parametrize("side", ["primary", "secondary"])
def test_a_sidebar_opens_and_closes_by_keyboard_on_a_phone(open_page, side: str) -> None:
    page = open_page("chapters/devices-and-data.html", 320)
    button = page.locator(f".{side}-toggle")
    button.focus()
    page.keyboard.press("Enter")
    dialog = f"#pst-{side}-sidebar-modal"
    page.wait_for_selector(f"{dialog}[open]")
    page.keyboard.press("Tab")
    assert page.evaluate("s => document.activeElement.closest(s) !== null", dialog)
    page.keyboard.press("Escape")
    page.wait_for_selector(f"{dialog}:not([open])", state="attached")
    assert button.evaluate("button => button === document.activeElement")


def test_what_scrolls_can_be_focused(open_page) -> None:
    page = open_page("chapters/multiple-gpus-concise.html", 320)
    picture = page.locator("figure .picture").first
    picture.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.scrollLeft > 0")


def test_nothing_moves_for_whom_it_disturbs(open_page) -> None:
    page = open_page("chapters/index.html")
    longest = page.evaluate("""() => Math.max(...[...document.querySelectorAll("*")].flatMap(
      (element) => [null, "::before", "::after"].flatMap((pseudo) => {
        const {transitionDuration, animationDuration} = getComputedStyle(element, pseudo);
        return `${transitionDuration},${animationDuration}`.split(",").map(parseFloat);
      })))""")
    assert longest < 0.01
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
