"""A seal tells whatever has happened to a folder since, in one sentence that names the file."""

import json
from pathlib import Path
from typing import Any

import pytest

from d2l_mgpu.train.checksums import CheckpointError, check_files, seal, sealed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "weights").write_text("1 2 3")
    seal(tmp_path, {"step": 7})
    return tmp_path


def test_a_folder_under_seal_is_as_it_was(folder: Path) -> None:
    record = sealed(folder)
    assert record["step"] == 7 and record["files"].keys() == {"weights"}
    check_files(folder, record)


@pytest.mark.parametrize(
    "content",
    ["", "7", "[]", "{}", '{"files": {}}', "\0", "[" * 200_000, '{"a":' * 200_000, '{"a": 1e999}'],
    ids=lambda content: content[:10],
)
def test_what_is_no_record_is_damaged(content: str, folder: Path) -> None:
    (folder / "checkpoint.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"/checkpoint.json is damaged: its checksum does"):
        sealed(folder)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "/checkpoint.json does not say which files there are"),
        (["weights"], "/checkpoint.json does not say which files there are"),
        ({"weights": 3}, "/weights is damaged"),
        *(({name: ""}, "is missing: the checkpoint is not") for name in ("", ".", "..", "\0")),
        ({"../weights": ""}, "/weights is missing"),
        ({"/dev/zero": ""}, "/dev/zero is missing"),
        ({"x" * 300: ""}, "xxx cannot be read: File name too long"),
    ],
)
def test_files_that_cannot_be_right(files: Any, message: str, folder: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        check_files(folder, json.loads(json.dumps({"files": files})))
