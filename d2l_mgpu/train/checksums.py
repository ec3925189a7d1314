"""A folder under seal: `checkpoint.json` holds a SHA-256 of each file beside it, and of
itself.

A seal tells of accidents, such as a damaged disk. It does not tell who has written the
folder: checksums are no secret, and a forger computes them too.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any


class CheckpointError(RuntimeError):
    """A checkpoint cannot be used or written; the message names the file and says what
    to do."""


def seal(folder: Path, record: dict[str, Any]) -> None:
    """Write `record` and the checksums of all files in `folder` to its
    `checkpoint.json`."""
    files = {path.name: _sha256(path) for path in sorted(folder.iterdir())}
    record = {**record, "files": files}
    record["sha256"] = _sha256_of(record)
    with (folder / "checkpoint.json").open("w") as file:
        json.dump(record, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def sealed(folder: Path) -> dict[str, Any]:
    """Return the record in `folder`; raises CheckpointError unless it is as it was
    written."""
    record_file = folder / "checkpoint.json"
    if record_file.exists() and not record_file.is_file():
        # reading a pipe would wait
        raise CheckpointError(f"{record_file} is not a file.")
    try:
        record = json.loads(record_file.read_bytes())
        whole = isinstance(record, dict) and record.get("sha256") == _sha256_of(record)
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder} is no checkpoint: it has no checkpoint.json."
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"{record_file} cannot be read: {error.strerror}."
        ) from None
    except (ValueError, RecursionError):  # no JSON, or brackets without end
        whole = False
    if not whole:
        raise CheckpointError(f"{record_file} is damaged: its checksum does not fit.")
    return record


def check_files(folder: Path, record: dict[str, Any]) -> None:
    """Raise CheckpointError unless each file that `record` names is as it was
    written."""
    files = record.get("files")
    if not isinstance(files, dict):
        raise CheckpointError(
            f"{folder / 'checkpoint.json'} does not say which files there are."
        )
    for name, expected in files.items():
        file = folder / name
        try:
            if file.parent != folder or not file.is_file():
                raise CheckpointError(
                    f"{file} is missing: the checkpoint is not complete."
                )
            found = _sha256(file)
        # a disk does not always return wrong bits: often, none
        except OSError as error:
            raise CheckpointError(f"{file} cannot be read: {error.strerror}.") from None
        if found != expected:
            raise CheckpointError(f"{file} is damaged: its checksum does not fit.")


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sha256_of(record: dict[str, Any]) -> str:
    rest = {key: value for key, value in record.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
