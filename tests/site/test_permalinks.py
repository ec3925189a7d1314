"""What can be cited has a permalink; what is copied can be typed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1000, "height": 600})
    yield context.new_page()
    context.close()


def test_everything_that_can_be_cited_has_a_permalink_that_the_keyboard_shows(
    their_book: Path, page: Page
) -> None:
    page.goto((their_book / "_build/html/chapters/first.html").as_uri())
    for parent in ("h1", "h2", "figcaption", "caption", ".eqno"):
        link = page.locator(f"{parent} a.headerlink").first
        page.mouse.move(0, 0)
        expect(link).to_have_css("opacity", "0")
        link.focus()
        expect(link).to_be_focused()
        expect(link).to_have_css("opacity", "1")
        link.evaluate("link => link.blur()")
        link.locator("..").hover()
        expect(link).to_have_css("opacity", "1")


def test_the_copy_button_leaves_out_prompts_and_what_was_printed(
    their_book: Path, page: Page
) -> None:
    page.goto((their_book / "_build/html/chapters/index.html").as_uri())
    page.evaluate("document.addEventListener('copy', (e) => { window.copied = e.target.value; })")
    block = page.locator(".highlight-console")
    block.hover()
    block.locator("button.copybtn").click()
    assert page.evaluate("window.copied") == "make book\nmake test"
