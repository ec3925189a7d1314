"""Fixtures that several test files share."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from filelock import FileLock
from playwright.sync_api import Browser

from book.browser import NAMES, program, running
from tests.support import ROOT
from tests.support.leftovers import state_of_this_process
from tests.support.their_book import build_their_book
from tests.support.tiny_book import build_tiny_book

# The tests of the Gluon edition run where MXNet is: tests/package/test_gluon.py starts them there.
collect_ignore = [] if find_spec("mxnet") else ["gluon"]


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What builds a book or opens the browser belongs to the tests of the site."""
    for item in items:
        if {"browser", "tiny_book", "their_book"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.site)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with the real MNIST and Fashion-MNIST files, as `D2L_MGPU_DATA` expects it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        message = "needs the real images in ../shared/data, which are not on this machine"
        # Not CI, which GitHub sets too, where these files are not.
        required = os.environ.get("D2L_MGPU_TEST_REAL_DATA")
        pytest.fail(message) if required else pytest.skip(message)
    return folder


def made_once(temporary: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` makes for the first test that asks for it; not to be changed.

    Processes that run tests side by side have folders of their own, but share its parent.
    """
    shared = temporary.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder, made = shared / name, shared / f"{name}-is-made"
    with FileLock(shared / f"{name}.lock"):
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            made.touch()
    return folder


@pytest.fixture(scope="session")
def tiny_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny book, built once as a site and as notebooks; not to be changed."""
    return made_once(tmp_path_factory, "tiny-book", build_tiny_book)


@pytest.fixture(scope="session")
def their_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny book as somebody else publishes it, built once as a site; not to be changed."""
    return made_once(tmp_path_factory, "their-book", build_their_book)


@pytest.fixture(scope="module")  # its processes must not live on in the tests of launch
def browser() -> Iterator[Browser]:
    """The machine's Chromium or Chrome, without a window."""
    path = program()
    if path is None:
        message = f"needs a browser, but none of {', '.join(NAMES)} is on this machine"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    with running(path) as chromium:
        yield chromium


@pytest.fixture(params=["server", pytest.param("spawn", marks=pytest.mark.slow)])
def each_start(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let `launch` start processes in one of its two ways."""
    monkeypatch.setenv("D2L_MGPU_START", request.param)
    return str(request.param)


@pytest.fixture
def leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compare this process before and after the test, with a temporary folder of its own.

    The fork server, which `launch` keeps for the next time, runs before.
    """
    from d2l_mgpu.processes.caller import caller_as_before
    from d2l_mgpu.processes.fork_server import start_method

    with caller_as_before():  # the server is another in another environment
        start_method()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))  # for the processes that it starts
    before = state_of_this_process()
    yield
    assert state_of_this_process() == before
