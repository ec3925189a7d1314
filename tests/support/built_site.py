"""The built site as readers get it: its pages, and a browser that notes what goes wrong in them."""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response, Route

from book.languages import Language
from tests.support import ROOT

SITE = ROOT / "_build" / "html"


def pages(site: Path = SITE) -> list[str]:
    """Every page, relative to the site."""
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))


def chapter(spoken: Language) -> str:
    """The page with the most in it: formulas, figures, plots, hints, code."""
    return f"{spoken.path}chapters/multiple-gpus.html"


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder below /book/ and says nothing about it."""

    def translate_path(self, path: str) -> str:
        """Nothing is served outside /book/, so that an address from the root on is noticed."""
        below = path.removeprefix("/book/") if path.startswith("/book/") else "nothing-is-here"
        return super().translate_path(f"/{below}")

    def log_message(self, format: str, *args: object) -> None:
        """The tests see the answers."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve a site on this machine below a path; the address ends with a slash."""
    handler = functools.partial(Handler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/book/"
        server.shutdown()


def soup(path: Path) -> BeautifulSoup:
    """A page, to be searched."""
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def load_everything(page: Page) -> None:
    """Load the images that wait until the reader comes near, and see that each can be shown."""
    page.wait_for_function(  # evaluate() would wait for ever
        """() => Promise.all([...document.images].map((image) => {
          image.loading = "eager";
          return image.decode().catch(() => console.error(`cannot show ${image.src}`));
        }))""",
        polling=1000,
    )


@contextmanager
def watched(browser: Browser, base: str, **settings: Any) -> Iterator[tuple[Page, list[str]]]:
    """A page without a network, and the list of what goes wrong while it is used.

    `base` is the address of the site; a request for anything else is refused and noted. `settings`
    are those of a browser's context, such as its viewport.
    """
    problems: list[str] = []
    local = base.startswith("file:")
    # Offline refuses this machine's server, too.
    context = browser.new_context(offline=local, **settings)

    def pass_or_refuse(route: Route) -> None:
        if route.request.url.startswith((base, "data:", "blob:")):
            route.continue_()
        else:
            problems.append(f"request outside the site: {route.request.url}")
            route.abort()

    def note_failure(request: Request) -> None:
        # The browser itself gives up the icon of its tab when the next page comes too soon.
        if request.failure != "net::ERR_ABORTED":
            problems.append(f"failed: {request.url} {request.failure}")

    def note_answer(answer: Response) -> None:
        if answer.status >= 400:
            problems.append(f"{answer.status}: {answer.url}")

    def note_message(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            problems.append(f"console {message.type}: {message.text}")

    context.route("**/*", pass_or_refuse)
    page = context.new_page()
    page.on("requestfailed", note_failure)
    page.on("response", note_answer)
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("console", note_message)
    yield page, problems
    context.close()
