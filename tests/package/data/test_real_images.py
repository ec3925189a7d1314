"""The published images: genuine, damaged, or downloaded from servers of many characters."""

import contextlib
import gzip
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision import datasets

from d2l_mgpu import load_data_fashion_mnist
from d2l_mgpu.data import real_images
from tests.support.tiny_images import FILES, idx, put, tiny_set


@pytest.mark.parametrize(
    ("name", "sizes"), [("FashionMNIST", (720, 180)), ("MNIST", (60_000, 10_000))]
)
def test_genuine_images_load_unchanged(
    monkeypatch: pytest.MonkeyPatch, real_data: Path, name: str, sizes: tuple[int, int]
) -> None:
    monkeypatch.setenv("D2L_MGPU_DATA", str(real_data))
    for batches, size, train in zip(
        load_data_fashion_mnist(256, name=name, source="real"), sizes, (True, False), strict=True
    ):
        expected = getattr(datasets, name)(real_data, train=train)
        X, y = batches.dataset[:100]
        assert len(batches.dataset) == size
        assert torch.equal((X * 255).round().byte().squeeze(1), expected.data[:100])
        assert torch.equal(y, expected.targets[:100])


# Files that are broken


def replaced(position: int, value: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:position] + bytes([value]) + content[position + 1 :]


BROKEN: list[tuple[str, int, Callable[[bytes], bytes], str]] = [
    ("cut short", 0, lambda content: content[:-1], "promises 23520 bytes, but 23519 follow"),
    ("empty", 2, lambda content: b"", "does not begin like"),
    ("too long", 1, lambda content: content + b"x", "promises 30 bytes, but 31 follow"),
    ("still packed", 0, gzip.compress, "does not begin like an uncompressed IDX"),
    ("a web page", 3, lambda content: b"<html>not found</html>", "does not begin like"),
    ("floats", 0, replaced(2, 13), "does not begin like"),
    ("not 28x28", 0, replaced(15, 32), r"items of shape \(28, 32\)"),
    ("a label too many", 1, lambda content: idx(np.arange(31) % 10), "31 labels for 30 images"),
    ("a label above 9", 3, replaced(20, 10), "label 10, above 9"),
    ("no labels", 1, lambda content: idx(np.arange(0)), "0 items"),
]


@pytest.mark.parametrize(
    ("number", "damage", "message"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN]
)
@pytest.mark.parametrize("source", ["auto", "real"])
def test_a_damaged_file_is_named_with_what_was_found_and_what_to_do(
    number: int, damage: Callable[[bytes], bytes], message: str, source: str
) -> None:
    path = put(real_images.USUAL_FOLDER) / FILES[number]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=message) as error:
        load_data_fashion_mnist(8, source=source)
    assert str(path) in str(error.value) and "delete it" in str(error.value)


@pytest.fixture(scope="module")
def whole_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    put(folder)
    return folder


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(FILES), st.floats(0, 1, exclude_max=True))
def test_a_file_cut_anywhere_is_never_read(whole_set: Path, filename: str, kept: float) -> None:
    path = whole_set / "FashionMNIST" / "raw" / filename
    content = path.read_bytes()
    try:
        path.write_bytes(content[: int(kept * len(content))])
        with pytest.raises(ValueError, match="is damaged"):
            real_images.read(whole_set, "FashionMNIST")
    finally:
        path.write_bytes(content)


# Downloads


class Server(ThreadingHTTPServer):
    """Serves ``/<character>/<filename>`` in the manner of that character."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files = {
            f"{name}.gz": gzip.compress(content, mtime=0) for name, content in tiny_set().items()
        }
        self.closing = threading.Event()
        self.asked: list[str] = []

    def mirror(self, character: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{character}/"


class Answer(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        character, filename = self.path.strip("/").split("/")
        self.server.asked.append(self.path)
        content = self.server.files[filename]
        if character == "mute":
            self.server.closing.wait()
            return
        self.send_response(404 if character == "lost" else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if character == "garbage":
            content = bytes(len(content))
        if character in ("cut", "stalling", "dripping"):
            content = content[: len(content) // 2]
        self.wfile.write(content)
        self.wfile.flush()
        if character == "stalling":
            self.server.closing.wait()
        while character == "dripping" and not self.server.closing.wait(0.05):
            with contextlib.suppress(OSError):  # the reader has given up
                self.wfile.write(b"x")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    resources = [(name, hashlib.md5(content).hexdigest()) for name, content in server.files.items()]
    monkeypatch.setattr(datasets.FashionMNIST, "resources", resources)
    monkeypatch.setattr(real_images, "SILENCE", 0.5)
    monkeypatch.setattr(real_images, "GIVE_UP", 2.0)
    yield server
    server.closing.set()
    server.shutdown()
    thread.join()
    server.server_close()


def use(monkeypatch: pytest.MonkeyPatch, server: Server, *characters: str) -> None:
    mirrors = [server.mirror(character) for character in characters]
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", mirrors)


def test_a_download_is_kept_and_read_silently(
    monkeypatch: pytest.MonkeyPatch, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, server, "good")
    for _ in range(2):
        train, test = load_data_fashion_mnist(8)
        assert (train.dataset.name, len(train.dataset), len(test.dataset)) == (
            "FashionMNIST",
            30,
            20,
        )
        assert capsys.readouterr().err == ""
    assert len(server.asked) == 4  # the second load read the files of the first
    raw = real_images.USUAL_FOLDER / "FashionMNIST" / "raw"
    assert {path.name: path.read_bytes() for path in raw.iterdir()} == tiny_set()
    assert [path.name for path in real_images.USUAL_FOLDER.iterdir()] == ["FashionMNIST"]


def test_progress_is_shown_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, server, "good")
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    load_data_fashion_mnist(8)
    shown = capsys.readouterr().err
    assert all(f"{name}.gz: 100%" in shown for name in FILES)


@pytest.mark.parametrize(
    ("character", "why"),
    [
        ("cut", "cut short|more expected"),
        ("garbage", "not the published file"),
        ("lost", "404"),
        ("mute", "no answer in|timed out"),
        ("stalling", "timed out"),
        ("dripping", "not complete after 2 s"),
    ],
)
def test_a_failed_download_ends_says_why_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
    server: Server,
    capsys: pytest.CaptureFixture[str],
    character: str,
    why: str,
) -> None:
    use(monkeypatch, server, character)
    with pytest.raises(real_images.DownloadError, match=why):
        load_data_fashion_mnist(8, source="real")
    assert not list(real_images.USUAL_FOLDER.iterdir())
    use(monkeypatch, server, character, "good")  # the next mirror, in the next run
    assert load_data_fashion_mnist(8)[0].dataset.name == "FashionMNIST"


@pytest.mark.parametrize("limit", ["packed", "unpacked"])
def test_a_file_that_is_too_large_is_refused_before_it_fills_the_disk(
    monkeypatch: pytest.MonkeyPatch, server: Server, limit: str
) -> None:
    """Packed, a file may never end; unpacked, a small one may become a large one."""
    use(monkeypatch, server, "good")
    name, packed = f"{FILES[0]}.gz", server.files[f"{FILES[0]}.gz"]
    most = len(packed) - 1 if limit == "packed" else len(gzip.decompress(packed)) - 1
    assert len(packed) < len(gzip.decompress(packed)) - 1
    monkeypatch.setattr(real_images, "LARGEST", most)
    too_large = name if limit == "packed" else FILES[0]
    with pytest.raises(real_images.DownloadError, match=f"{too_large} is larger than {most:,}"):
        load_data_fashion_mnist(8, source="real")
    assert not list(real_images.USUAL_FOLDER.iterdir())


def test_the_limit_of_a_file_leaves_room_for_the_largest_one() -> None:
    assert 60_000 * 28 * 28 + 16 < real_images.LARGEST < 10**8


def test_an_interrupt_between_two_files_leaves_nothing_that_the_next_run_trusts(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    use(monkeypatch, server, "good")
    replace = os.replace
    moved: list[Path] = []

    def interrupted(source: Path, target: Path) -> None:
        if len(moved) == 2:
            raise KeyboardInterrupt
        moved.append(target)
        replace(source, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(real_images.os, "replace", interrupted)
        load_data_fashion_mnist(8)
    assert len(moved) == 2
    assert len(load_data_fashion_mnist(8)[0].dataset) == 30
    assert len(server.asked) == 8  # all four files again
