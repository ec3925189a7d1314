"""Loading images: which ones, from where, in which form, and what happens when they are broken."""

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
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision import datasets

from d2l_mgpu import FASHION_MNIST_LABELS, load_data_fashion_mnist
from d2l_mgpu.data import Batches, Images, real_images

GENERATED = "Generated garments (not Fashion-MNIST)"
FILES = [
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]


@pytest.fixture(autouse=True)
def nothing_outside_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable, no folder of this machine and no server outside takes part in these tests."""
    monkeypatch.delenv("D2L_MGPU_DATA", raising=False)
    monkeypatch.delenv("D2L_MGPU_SOURCE", raising=False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setattr(real_images, "USUAL_FOLDER", tmp_path / "usual")
    for dataset in (datasets.FashionMNIST, datasets.MNIST):
        monkeypatch.setattr(dataset, "mirrors", ["http://127.0.0.1:9/"])  # nothing listens there


def idx(array: np.ndarray) -> bytes:
    """The IDX file of an array of bytes."""
    shape = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes((0, 0, 8, array.ndim)) + shape + array.astype(np.uint8).tobytes()


def tiny_set() -> dict[str, bytes]:
    """The four files of a data set with 30 training and 20 test images."""
    files = []
    for n in (30, 20):
        files.append(idx(np.arange(n * 784).reshape(n, 28, 28) % 251))
        files.append(idx(np.arange(n) % 10))
    return dict(zip(FILES, files, strict=True))


def put(folder: Path, name: str = "FashionMNIST") -> Path:
    """Write the tiny set where torchvision looks for it; returns the folder of the files."""
    raw = folder / name / "raw"
    raw.mkdir(parents=True)
    for filename, content in tiny_set().items():
        (raw / filename).write_bytes(content)
    return raw


# What a reader gets


def test_a_batch_has_floats_from_0_to_1_and_whole_labels() -> None:
    for batches in load_data_fashion_mnist(256, source="generated", num_train=512):
        X, y = next(iter(batches))
        assert X.shape == (256, 1, 28, 28) and X.dtype == torch.float32
        assert X.min() == 0 and 0.9 < X.max() <= 1
        assert y.shape == (256,) and y.dtype == torch.int64
        assert set(y.tolist()) == set(range(10))


def test_resize_changes_the_side_and_keeps_the_picture() -> None:
    plain = next(iter(load_data_fashion_mnist(8, source="generated")[1]))
    large = next(iter(load_data_fashion_mnist(8, 56, source="generated")[1]))
    assert large[0].shape == (8, 1, 56, 56)
    assert torch.equal(large[1], plain[1])
    shrunk = torch.nn.functional.avg_pool2d(large[0], 2)
    assert (shrunk - plain[0]).abs().mean() < 0.05


def test_one_image_a_slice_and_a_list_can_be_indexed() -> None:
    train, _ = load_data_fashion_mnist(8, 14, source="generated")
    assert train.dataset[3][0].shape == (1, 14, 14) and train.dataset[3][1].shape == ()
    assert train.dataset[:5][0].shape == (5, 1, 14, 14)
    assert torch.equal(train.dataset[[3]][0][0], train.dataset[3][0])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 50))
def test_every_epoch_visits_every_image_once(n: int, batch_size: int) -> None:
    pixels = torch.zeros(n, 28, 28, dtype=torch.uint8)
    images = Images(pixels, torch.arange(n), name="numbered", origin="counted")
    for batches in (Batches(images, batch_size, seed=0), Batches(images, batch_size)):
        labels = [y for _, y in batches]
        assert len(labels) == len(batches) == -(-n // batch_size)
        assert all(len(y) == batch_size for y in labels[:-1])
        assert sorted(torch.cat(labels).tolist()) == list(range(n))


def labels_in_order(batches: Batches) -> list[int]:
    return torch.cat([y for _, y in batches]).tolist()


def test_the_order_is_new_in_every_epoch_the_same_for_a_seed_and_fixed_for_the_test_set() -> None:
    train, test = load_data_fashion_mnist(64, source="generated", num_train=200)
    again, _ = load_data_fashion_mnist(64, source="generated", num_train=200)
    other, _ = load_data_fashion_mnist(64, source="generated", num_train=200, seed=1)
    epochs = [labels_in_order(train) for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert [labels_in_order(again) for _ in range(2)] == epochs
    assert labels_in_order(other) != epochs[0]
    assert torch.equal(other.dataset.pixels, train.dataset.pixels)
    assert labels_in_order(test) == labels_in_order(test) == test.dataset.labels.tolist()


def test_a_loop_over_the_batches_leaves_the_global_generator_alone() -> None:
    train, test = load_data_fashion_mnist(64, source="generated", num_train=200, num_test=100)
    before = torch.get_rng_state()
    for batches in (train, test):
        labels_in_order(batches)
    assert torch.equal(torch.get_rng_state(), before)


def test_batches_travel_to_another_process_with_their_order() -> None:
    train, _ = load_data_fashion_mnist(64, source="generated", num_train=200)
    copy = cloudpickle.loads(cloudpickle.dumps(train))
    assert repr(copy) == repr(train)
    assert labels_in_order(copy) == labels_in_order(train)


# What it says it is


def test_the_generated_set_never_poses_as_the_real_one(capsys: pytest.CaptureFixture[str]) -> None:
    train, test = load_data_fashion_mnist(256, source="generated")
    line = (
        f"{GENERATED}: 12000 training and 2000 test images, "
        "drawn by d2l_mgpu.garments with seed 0\n"
    )
    assert capsys.readouterr().out == line
    for what in (repr(train), repr(test.dataset)):
        assert what.startswith(GENERATED) and "drawn by d2l_mgpu.garments" in what
    assert repr(train).endswith("in 47 batches")
    assert "2000 images" in repr(test)


def test_the_class_names_are_fashion_mnists() -> None:
    ours = [label.replace("-", "") for label in FASHION_MNIST_LABELS]
    theirs = [
        label.lower().split("/")[0].replace("-", "") for label in datasets.FashionMNIST.classes
    ]
    assert ours == theirs


def test_real_images_say_where_they_came_from_without_naming_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(real_images.USUAL_FOLDER)
    monkeypatch.setenv("HOME", str(tmp_path))
    train, _ = load_data_fashion_mnist(8)
    line = "FashionMNIST: 30 training and 20 test images, from ~/usual\n"
    assert capsys.readouterr().out == line
    assert repr(train) == "FashionMNIST: 30 images, from ~/usual, in 4 batches"
    monkeypatch.setenv("D2L_MGPU_DATA", str(tmp_path / "usual"))
    load_data_fashion_mnist(8)
    assert capsys.readouterr().out == line.replace("~/usual", "$D2L_MGPU_DATA")


# Where it looks


def test_the_folder_in_the_variable_comes_before_the_usual_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(real_images.USUAL_FOLDER)
    raw = put(tmp_path / "chosen")
    changed = bytearray((raw / FILES[0]).read_bytes())
    changed[16] = 77
    (raw / FILES[0]).write_bytes(changed)
    assert load_data_fashion_mnist(8)[0].dataset.pixels[0, 0, 0] == 0
    monkeypatch.setenv("D2L_MGPU_DATA", str(tmp_path / "chosen"))
    assert load_data_fashion_mnist(8)[0].dataset.pixels[0, 0, 0] == 77


def test_the_source_is_pinned_by_the_variable_and_the_argument_beats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(real_images.USUAL_FOLDER)
    monkeypatch.setenv("D2L_MGPU_SOURCE", "generated")
    assert load_data_fashion_mnist(8)[0].dataset.name == GENERATED
    assert load_data_fashion_mnist(8, source="real")[0].dataset.name == "FashionMNIST"
    monkeypatch.setenv("D2L_MGPU_SOURCE", "real")
    assert load_data_fashion_mnist(8)[0].dataset.name == "FashionMNIST"
    assert load_data_fashion_mnist(8, source="generated")[0].dataset.name == GENERATED


def test_generated_neither_reads_nor_downloads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("D2L_MGPU_DATA", str(tmp_path / "absent"))
    monkeypatch.setattr(real_images, "find", lambda name: pytest.fail("looked for files"))
    assert load_data_fashion_mnist(8, source="generated")[0].dataset.name == GENERATED


@pytest.mark.parametrize("source", ["auto", "real"])
def test_a_chosen_folder_without_the_images_is_an_error_that_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    put(tmp_path / "chosen")
    monkeypatch.setenv("D2L_MGPU_DATA", str(tmp_path / "chosen"))
    with pytest.raises(FileNotFoundError, match=r"D2L_MGPU_DATA is .* no MNIST/raw/train-images"):
        load_data_fashion_mnist(8, name="MNIST", source=source)


def test_without_files_and_network_auto_draws_and_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    load_data_fashion_mnist(8)
    why, what = capsys.readouterr().out.splitlines()
    assert "could not be downloaded" in why and "Drawings stand in" in why
    assert what.startswith(GENERATED)


def test_without_files_and_network_real_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(real_images.DownloadError, match=r"could not be downloaded.*D2L_MGPU_DATA"):
        load_data_fashion_mnist(8, source="real")


def test_a_folder_that_cannot_be_written_is_named_and_drawings_stand_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(real_images, "USUAL_FOLDER", tmp_path / "file" / "usual")
    load_data_fashion_mnist(8)
    why, what = capsys.readouterr().out.splitlines()
    assert "Not a directory" in why and what.startswith(GENERATED)


def test_there_are_no_generated_digits() -> None:
    with pytest.raises(ValueError, match="no generated MNIST"):
        load_data_fashion_mnist(8, name="MNIST", source="generated")
    with pytest.raises(real_images.DownloadError, match="MNIST is not in"):
        load_data_fashion_mnist(8, name="MNIST")


# The genuine files


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


# Downloads, from servers of many characters


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


# Arguments that cannot be right


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, not 0"),
        ({"batch_size": -3}, "batch_size must be"),
        ({"batch_size": 2.0}, "batch_size must be"),
        ({"batch_size": True}, "batch_size must be"),
        ({"resize": 0}, "resize must be"),
        ({"num_train": 0}, "num_train must be"),
        ({"num_test": -1}, "num_test must be"),
        ({"num_train": 12_001}, "num_train is 12001, but there are only 12000 .Generated"),
        ({"num_test": 2_001}, "num_test is 2001, but there are only 2000"),
        ({"name": "EMNIST"}, "name must be 'FashionMNIST' or 'MNIST', not 'EMNIST'"),
        ({"source": "fake"}, "source must be 'auto', 'real' or 'generated', not 'fake'"),
    ],
)
def test_an_argument_that_cannot_be_right_is_refused_in_one_sentence(
    arguments: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"batch_size": 8, "source": "generated"} | arguments
    with pytest.raises(ValueError, match=message):
        load_data_fashion_mnist(**options)
    assert capsys.readouterr().out == ""


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D2L_MGPU_SOURCE", "Generated")
    with pytest.raises(ValueError, match=r"D2L_MGPU_SOURCE must be .* not 'Generated'"):
        load_data_fashion_mnist(8)
