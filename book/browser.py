"""The browser on this machine that prints the book, draws its cards, and tests the site."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


def program() -> str | None:
    """Where Chromium or Chrome is, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def running(path: str) -> Iterator[Browser]:
    """That browser without a window, closed at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield browser
        browser.close()
