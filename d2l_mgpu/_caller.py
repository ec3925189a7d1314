"""What `launch` does in and to the process that calls it: show what the ranks print, keep their
folder, and give everything back as it was, whatever happens and however often Ctrl-C is pressed.
"""

import codecs
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import active_children, resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# Runs until its standard input ends, which is when the caller has died, however it died: then
# nobody else is left to end the ranks (each leads a process group) and to remove their folder.
_GUARD = """
trap '' HUP INT TERM
read -r _
for file in "$1"/*.pid; do
    read -r pid <"$file"
    kill -s KILL -- "-$pid"
done
rm -rf "$1"
"""


class Output:
    """What one rank prints, on its way from its file to the caller's standard output."""

    def __init__(self, file: Path, prefix: str) -> None:
        self.file, self.prefix = file, prefix
        self.seen = 0  # bytes read so far
        self.line = ""  # the line that is not complete yet
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(self, ended: bool = False) -> None:
        """Print what is new; with a prefix only complete lines, until the rank has `ended`."""
        with suppress(FileNotFoundError), self.file.open("rb") as file:
            file.seek(self.seen)
            while new := file.read(2**20):
                self.seen += len(new)
                self._print(self.decoder.decode(new))
                if not ended:
                    break  # a rank may print faster than we do
        if ended:
            self._print(self.decoder.decode(b"", final=True))
            self._print("\n" if self.line else "")

    def _print(self, text: str) -> None:
        if self.prefix:
            *lines, rest = (self.line + text).split("\n")
            self.line = _last_state(rest)
            states = [_last_state(line) for line in lines]
            # A line of which nothing is left is a progress bar that wiped itself off.
            states = [state for state in states if state.strip() or "\r" not in state]
            text = "".join(self.prefix + state.strip("\r") + "\n" for state in states)
        if text:
            print(text, end="", flush=True)


def _last_state(line: str) -> str:
    """Of a progress bar, which returns to the start of its line, keep only the last state."""
    return line[max(line.rstrip("\r").rfind("\r"), 0) :]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put a Ctrl-C off until the block has ended."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # no Ctrl-C comes here as an exception
        return
    pressed = False

    def remember(*_: Any) -> None:
        nonlocal pressed
        pressed = True

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if pressed:
            handler(signal.SIGINT, None)


@contextmanager
def guarded_folder() -> Iterator[Path]:
    """A temporary folder that is removed even when this process is killed, and with it the ranks
    whose `.pid` files are there."""
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
        yield Path(folder.name)
    finally:
        with uninterrupted():
            if guard is not None:
                guard.kill()
                guard.communicate()
            folder.cleanup()


@contextmanager
def caller_as_before() -> Iterator[None]:
    """Give the caller its `__main__`, loggers, environment and children back unchanged."""
    import torch.distributed.elastic.agent.server.local_elastic_agent  # noqa: F401  # makes loggers

    main: dict[str, Any] = vars(sys.modules["__main__"])
    names: tuple[str, ...] = ("__file__", "__spec__")
    hidden = {name: main[name] for name in names if name in main}
    switch = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"  # else the agent opens a port for nobody
    was_switched = os.environ.get(switch)
    loggers = [
        logging.getLogger(name)
        for name in list(logging.root.manager.loggerDict)
        if name.startswith(("torch.distributed", "torch.multiprocessing"))
    ]
    silent = {logger: logger.disabled for logger in loggers}
    # multiprocessing starts a process that cleans up after it, and lets that run on
    tracker: Any = resource_tracker._resource_tracker
    was_tracking = tracker._fd is not None  # a rank uses the one of its own caller
    try:
        for name in hidden:
            del main[name]
        main["__spec__"] = None  # spawned processes now have no script to run again
        os.environ[switch] = "1"
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        with uninterrupted():
            main.update(hidden)
            for logger, was_silent in silent.items():
                logger.disabled = was_silent
            os.environ.pop(switch)
            if was_switched is not None:
                os.environ[switch] = was_switched
            gc.collect()  # the agent's semaphores still need the tracker
            if not (was_tracking or active_children()):  # another thread's may be using it
                tracker._stop()
