"""Loading Fashion-MNIST: which images, from where, and what it says they are."""

from pathlib import Path
from typing import Any

import pytest
from torchvision import datasets

from d2l_mgpu import FASHION_MNIST_LABELS, load_data_fashion_mnist
from d2l_mgpu.data import real_images
from tests.support.tiny_images import FILES, put

GENERATED = "Generated garments (not Fashion-MNIST)"


# What it says it is


def test_the_generated_set_never_poses_as_the_real_one(capsys: pytest.CaptureFixture[str]) -> None:
    train, test = load_data_fashion_mnist(256, source="generated")
    line = (
        f"{GENERATED}: 12000 training and 2000 test images, "
        "drawn by d2l_mgpu.garments with seed 0\n"
    )
    assert capsys.readouterr().out == line
    load_data_fashion_mnist(128, source="generated")
    assert capsys.readouterr().out == "", "a notebook says it once"
    load_data_fashion_mnist(128, num_train=5, source="generated")
    assert "5 training and" in capsys.readouterr().out
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


# Whose they are


def test_what_is_done_to_the_images_does_not_come_back_with_the_next_call() -> None:
    first, second = (load_data_fashion_mnist(8, num_train=4, source="generated") for _ in range(2))
    for ours, theirs in zip(first, second, strict=True):
        ours.dataset.pixels.fill_(7)
        ours.dataset.labels.fill_(7)
        assert not (theirs.dataset.pixels == 7).all() and not (theirs.dataset.labels == 7).all()
    for fresh, theirs in zip(
        load_data_fashion_mnist(8, num_train=4, source="generated"), second, strict=True
    ):
        assert fresh.dataset.pixels.equal(theirs.dataset.pixels)
        assert fresh.dataset.labels.equal(theirs.dataset.labels)


# Arguments that cannot be right


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, but it is 0"),
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
