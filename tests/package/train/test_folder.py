"""One run at a time writes to a folder, and finds it free of half a checkpoint."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from d2l_mgpu import launch
from d2l_mgpu.processes.group import process_group
from d2l_mgpu.train import CheckpointError
from d2l_mgpu.train.folder import one_writer, steps

# What another process does that has the folder.
HOLD = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); "
HOLD += "print('held', flush=True); input()"


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of one."""
    with process_group(60):
        yield


def write(folder: Path) -> str:
    """What a run of this rank says that wants to write to `folder`."""
    try:
        with one_writer(folder) as note:
            return note or "writes"
    except CheckpointError as error:
        return str(error)


def test_a_second_run_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    """On all ranks; and it need not end well: the kernel takes back the lock of the dead."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / ".lock")]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    refused = f"Another run writes its checkpoints here, and holds {tmp_path}/.lock: wait for its"
    for said in launch(write, tmp_path, num_devices=2):
        assert said.startswith(refused)
    threading.Timer(0.3, first.kill).start()
    with process_group(60):
        with one_writer(tmp_path, patience=60):
            pass
        assert write(tmp_path) == "writes"
        with one_writer(tmp_path):
            assert write(tmp_path).startswith(refused)
        assert write(tmp_path) == "writes"
    first.communicate()


def test_what_a_killed_run_left_is_removed_and_no_link_is_followed(
    tmp_path: Path, alone: None
) -> None:
    folder, other = tmp_path / "new" / "run", tmp_path / "other"
    for leftover in (folder / ".writing-00000001" / "part", other / "precious"):
        leftover.parent.mkdir(parents=True)
        leftover.touch()
    (folder / ".writing-00000002").touch()
    (folder / ".writing-00000003").symlink_to(other)
    (folder / ".writing-00000004").symlink_to(other / "precious")
    (folder / ".writing-00000005").symlink_to(folder / "nothing")
    (folder / ".writing-").mkdir()
    (folder / "step-00000001").mkdir()
    (folder / "notes").touch()
    with one_writer(folder):
        assert sorted(os.listdir(folder)) == [".lock", "notes", "step-00000001"]
        assert steps(folder) == [folder / "step-00000001"]
    assert (other / "precious").exists()


def file_in_its_place(folder: Path) -> None:
    folder.touch()


def folder_for_the_lock(folder: Path) -> None:
    (folder / ".lock").mkdir(parents=True)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [(file_in_its_place, "File exists"), (folder_for_the_lock, "Is a directory")],
)
def test_a_folder_that_takes_no_checkpoints_is_named_at_once(
    spoil: Callable[[Path], None], reason: str, tmp_path: Path, alone: None
) -> None:
    spoil(tmp_path / "run")
    assert write(tmp_path / "run").startswith(f"{tmp_path}/run cannot take checkpoints: {reason}.")


def test_a_file_system_without_locks_is_said(
    tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locks(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", without_locks)
    said = f"{tmp_path}/.lock cannot be locked (Function not implemented): see to it yourself"
    assert write(tmp_path).startswith(said)
