"""What the tests in a browser share."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a new reader's browser; some files have their own."""
    context = browser.new_context(viewport={"width": 1000, "height": 600})
    yield context.new_page()
    context.close()
