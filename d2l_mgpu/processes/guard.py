"""The folder of a launch, and the process that removes it if nobody else is left to do
so."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import process
from pathlib import Path
from tempfile import TemporaryDirectory

from d2l_mgpu.processes.caller import uninterrupted

# Runs until its standard input ends, which is when the caller has died, however it
# died: then nobody else is left to end the ranks (each leads a process group) and to
# remove their folder and, on Linux, their semaphores, which bear its name: the process
# that multiprocessing has for them is killed, too, where a whole process group is.
_GUARD = """
trap '' HUP INT TERM
read -r _
for file in "$1"/*.pid; do
    read -r pid <"$file"
    kill -s KILL -- "-$pid"
done
rm -rf "$1" "/dev/shm/sem.${1##*/}"-*
"""


@contextmanager
def guarded_folder() -> Iterator[Path]:
    """A temporary folder that is removed even when this process is killed, and with it
    the ranks whose `.pid` files are there, and semaphores that are made meanwhile."""
    folder = TemporaryDirectory(prefix="d2l-mgpu-", ignore_cleanup_errors=True)
    guard = None
    try:
        guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "d2l_mgpu.launch", folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a closing terminal ends the caller first
        )
        with _semaphores_named_like(Path(folder.name)):
            yield Path(folder.name)
    finally:
        with uninterrupted():
            if guard is not None:
                guard.kill()
                guard.communicate()
            folder.cleanup()


@contextmanager
def _semaphores_named_like(folder: Path) -> Iterator[None]:
    """Have multiprocessing begin the names of semaphores with that of `folder`."""
    settings: dict[str, str] = process.current_process()._config  # type: ignore[attr-defined]
    before = settings["semprefix"]
    settings["semprefix"] = f"/{folder.name}"
    try:
        yield
    finally:
        settings["semprefix"] = before
