"""A folder of checkpoints: how they are called, and that only one run at a time writes
to it.

A complete checkpoint is called `step-00000120`; while it is written,
`.writing-00000120`. The run that writes holds a lock of the kernel on the file `.lock`.
Such a lock ends with its process, however that ends; the file stays and means nothing.
"""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from d2l_mgpu.train.checksums import CheckpointError
from d2l_mgpu.train.together import on_rank_0


def steps(folder: Path) -> list[Path]:
    """Return the complete checkpoints in `folder`, the newest first."""
    found = [
        path
        for path in folder.glob("step-*")
        if re.fullmatch(r"step-\d{8,}", path.name)
    ]
    return sorted(found, key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """Return the step in the name of a checkpoint."""
    return int(path.name.removeprefix("step-"))


def without_waiting(path: str, flags: int) -> int:
    """Open a file to write to it; of a pipe that nobody reads, raise OSError at
    once."""
    file = os.open(path, flags | os.O_NONBLOCK, 0o666)
    os.set_blocking(file, True)  # what is written may take its time
    return file


def discard(path: Path) -> None:
    """Remove the folder or file at `path`, if it is there; of a link, the link only."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def one_writer(folder: Path, patience: float = 0.0) -> Iterator[str]:
    """Inside, no other run writes to `folder`, which is made, and freed of half a
    checkpoint.

    Waits `patience` seconds for a run that does. Yields a sentence to say where the
    file system has no locks, otherwise "". Raises CheckpointError when another run goes
    on writing there, or when nobody can. A collective: rank 0 acts.
    """
    with ExitStack() as until_the_end:
        yield on_rank_0(lambda: _take(folder, patience, until_the_end))


def _take(folder: Path, patience: float, until_the_end: ExitStack) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / ".lock", "a", opener=without_waiting)  # noqa: SIM115 (the stack closes)
        until_the_end.enter_context(lock)
        note = _lock(lock, time.monotonic() + patience)
        # of a run that was killed while it wrote
        for leftover in folder.glob(".writing-*"):
            discard(leftover)
        # or else we would learn it after the first epoch
        (folder / ".writing-").mkdir()
        (folder / ".writing-").rmdir()
    except OSError as error:
        raise CheckpointError(
            f"{folder} cannot take checkpoints: {error.strerror}. Choose another "
            "--checkpoint-dir."
        ) from None
    return note


def _lock(file: TextIO, give_up: float) -> str:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return ""
        except BlockingIOError:
            if time.monotonic() >= give_up:
                raise CheckpointError(
                    f"Another run writes its checkpoints here, and holds {file.name}: "
                    "wait for its end, stop it, or choose another --checkpoint-dir. "
                    "If it was on a node that is gone, and the file system does not "
                    "notice, remove this file."
                ) from None
        except OSError as error:  # some network file systems
            return (
                f"{file.name} cannot be locked ({error.strerror}): see to it yourself "
                "that no other run uses the folder."
            )
        time.sleep(0.1)
