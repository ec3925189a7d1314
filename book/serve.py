"""Serve the site while you edit it: `python -m book.serve` (`make serve`).

A change builds what depends on it, English first, and the browser reloads the page after each
language. sphinx-autobuild brings the reloading; building is ours, in a process of its own, so that
it sees changes of the book's own code too.

Only pages of this server are answered. Without that, any page that is open in the browser could
read the book: its name may lead to this machine (DNS rebinding), and a WebSocket has no rule about
who opens it.
"""

import argparse
import asyncio
import contextlib
import shutil
import socket
import sys
from pathlib import Path

import uvicorn
from sphinx_autobuild.middleware import JavascriptInjectorMiddleware
from sphinx_autobuild.server import RebuildServer
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Mount, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketClose
from watchfiles import awatch

from book.config import ROOT
from book.languages import LANGUAGES, Language

HOST = "127.0.0.1"
WATCHED = ("chapters", "locales", "d2l_mgpu", "_config.yml", "_toc.yml")


class Rebuilder(RebuildServer):
    """Watches a book, builds what changed and tells the open pages to reload."""

    def __init__(self, root: Path, languages: list[Language]) -> None:
        found = [path for name in WATCHED if (path := root / name).exists()]
        super().__init__([*found, ROOT / "book"], lambda path: False, lambda paths: None)
        self.root, self.languages = root, languages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell a page of this server when to reload; a browser says of which server a page is."""
        headers = Headers(scope=scope)
        if headers.get("origin") == f"http://{headers['host']}":
            await super().__call__(scope, receive, send)
        else:
            await WebSocketClose()(scope, receive, send)

    async def watch(self) -> None:
        """Build everything once, then again after every change, one during a build included."""
        changes = awatch(*self.paths)
        while True:
            upcoming = asyncio.ensure_future(anext(changes))
            await self.build()
            if any(Path(path).is_relative_to(ROOT / "book") for _, path in await upcoming):
                # Sphinx does not know that pages depend on the code of its extensions.
                shutil.rmtree(self.root / "_build" / ".doctrees", ignore_errors=True)

    async def build(self) -> None:
        """Build the languages in turn. A build that fails says why, and the server goes on."""
        for spoken in self.languages:
            command = ("-m", "book.site", "html", str(self.root), spoken.folder)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, *command), cwd=ROOT, start_new_session=True
            )
            try:
                await process.wait()
            finally:  # Ctrl-C reaches the server only, which lets no build outlive it
                if process.returncode is None:
                    process.terminate()
            self.flag.set()


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def application(site: Path, rebuilder: Rebuilder, port: int) -> Starlette:
    """The folder `site` as a server that is asked for by its own address only."""
    return Starlette(
        routes=[
            WebSocketRoute("/websocket-reload", rebuilder),
            Mount("/", StaticFiles(directory=site, html=True)),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=[HOST], www_redirect=False),
            Middleware(JavascriptInjectorMiddleware, ws_url=f"{HOST}:{port}"),
        ],
        lifespan=rebuilder.lifespan,
    )


def serve(root: Path, languages: list[Language]) -> None:
    """Serve until Ctrl-C."""
    site = root / "_build" / "html"
    site.mkdir(parents=True, exist_ok=True)
    port = free_port()
    app = application(site, Rebuilder(root, languages), port)
    print(f"Serving http://{HOST}:{port}/{languages[0].path} - Ctrl-C ends it", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.run(app, host=HOST, port=port, log_level="warning", timeout_graceful_shutdown=2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="book.serve", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT, help="the book's folder")
    parser.add_argument("--language", choices=[each.folder for each in LANGUAGES])
    given = parser.parse_args()
    chosen = [each for each in LANGUAGES if given.language in (None, each.folder)]
    serve(given.folder.resolve(), chosen)
