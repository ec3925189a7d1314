"""Serve the site while you edit it: `python -m book.serve` (`make serve`).

A change builds what depends on it, English first, and the browser reloads the page after each
language. sphinx-autobuild brings the reloading; building is ours, in a process of its own, so that
it sees changes of the book's own code too.
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
from starlette.middleware import Middleware
from starlette.routing import Mount, WebSocketRoute
from starlette.staticfiles import StaticFiles
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


def serve(root: Path, languages: list[Language]) -> None:
    """Serve until Ctrl-C."""
    site = root / "_build" / "html"
    site.mkdir(parents=True, exist_ok=True)
    rebuilder = Rebuilder(root, languages)
    host = f"{HOST}:{free_port()}"
    app = Starlette(
        routes=[
            WebSocketRoute("/websocket-reload", rebuilder),
            Mount("/", StaticFiles(directory=site, html=True)),
        ],
        middleware=[Middleware(JavascriptInjectorMiddleware, ws_url=host)],
        lifespan=rebuilder.lifespan,
    )
    print(f"Serving http://{host}/{languages[0].path} - Ctrl-C ends it", flush=True)
    port = int(host.rpartition(":")[2])
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.run(app, host=HOST, port=port, log_level="warning", timeout_graceful_shutdown=2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="book.serve", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT, help="the book's folder")
    parser.add_argument("--language", choices=[each.folder for each in LANGUAGES])
    given = parser.parse_args()
    chosen = [each for each in LANGUAGES if given.language in (None, each.folder)]
    serve(given.folder.resolve(), chosen)
