"""Serving while editing: the open page follows, nothing is left, and other sites get nothing."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect
from starlette.types import Message

from book.languages import ENGLISH
from book.serve import Rebuilder, application
from tests.support import ROOT
from tests.support.tiny_book import copy_tiny_book


def test_the_open_page_follows_an_edit_and_nothing_is_left(tmp_path: Path, page: Page) -> None:
    folder = copy_tiny_book(tmp_path / "book")
    log = tmp_path / "log"
    command = [sys.executable, "-m", "book.serve", str(folder), "--language", "vi"]
    with log.open("w") as out:
        server = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        wait_for(lambda: "build succeeded" in log.read_text(), server)
        (address,) = re.findall(r"http://\S+", log.read_text().partition("\n")[0])
        page.goto(f"{address}chapters/first.html")
        assert page.get_by_text("A second paragraph.").is_visible()
        chapter = folder / "chapters/first.md"
        chapter.write_text(chapter.read_text().replace("A second paragraph.", "An edited one."))
        expect(page.get_by_text("An edited one.")).to_be_visible(timeout=180_000)
        # And while it builds, the build must go too.
        chapter.write_text(chapter.read_text().replace("An edited one.", "Once more."))
        wait_for(lambda: bool(psutil.Process(server.pid).children()), server)
        children = psutil.Process(server.pid).children(recursive=True)
        os.killpg(server.pid, signal.SIGINT)
        assert server.wait(60) == 0
        _, alive = psutil.wait_procs(children, 30)
        assert not alive
    finally:
        server.kill()
    assert "Traceback" not in log.read_text() and "0 chapters executed" in log.read_text()


def wait_for(condition, server: subprocess.Popen) -> None:
    """Wait until something holds while the server lives; the test's timeout ends it."""
    while not condition():
        assert server.poll() is None
        time.sleep(0.1)


def test_serve_takes_a_language_that_was_typed_but_not_the_systems() -> None:
    for arguments, environment, expected in [
        (["LANGUAGE=vi"], {}, True),
        ([], {"LANGUAGE": "vi"}, False),
    ]:
        command = ["make", "-n", "serve", *arguments]
        result = subprocess.run(
            command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
        )
        assert ("--language vi" in result.stdout) is expected


def first_answer(site: Path, kind: str, path: str, **headers: str) -> Message:
    """What the server on port 8000 says first to a request of a kind, "http" or "websocket"."""
    app = application(site, Rebuilder(site, [ENGLISH]), 8000)
    asked = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "method": "GET", "path": path, "headers": asked, "query_string": b""}
    if kind == "websocket":
        scope["extensions"] = {"websocket.http.response": {}}  # as uvicorn has it
    said: list[Message] = []
    heard = iter([{"type": f"{kind}.{'request' if kind == 'http' else 'connect'}"}])

    async def receive() -> Message:
        return next(heard, {"type": f"{kind}.disconnect", "code": 1000})

    async def send(message: Message) -> None:
        said.append(message)

    asyncio.run(app(scope, receive, send))
    return said[0]


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8000", 200), ("evil.example:8000", 400), ("evil.example", 400), ("", 400)],
)
def test_a_page_is_served_under_the_servers_own_address_only(
    tmp_path: Path, host: str, status: int
) -> None:
    (tmp_path / "page.html").write_text("<p>A page</p>")
    assert first_answer(tmp_path, "http", "/page.html", host=host)["status"] == status


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:8000"}, "websocket.accept"),
        ({"host": "127.0.0.1:8000", "origin": "http://evil.example"}, "websocket.close"),
        ({"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:9000"}, "websocket.close"),
        ({"host": "127.0.0.1:8000", "origin": "null"}, "websocket.close"),
        ({"host": "127.0.0.1:8000"}, "websocket.close"),
        (
            {"host": "evil.example:8000", "origin": "http://evil.example:8000"},
            "websocket.http.response.start",  # which refuses it, with status 400
        ),
    ],
)
def test_only_pages_of_the_server_hear_when_to_reload(
    tmp_path: Path, headers: dict[str, str], said: str
) -> None:
    assert first_answer(tmp_path, "websocket", "/websocket-reload", **headers)["type"] == said
