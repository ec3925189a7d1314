"""What a run says: to who watches, to who reads its output, and as events in a file."""

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from d2l_mgpu.history import Epoch
from d2l_mgpu.processes.group import Group
from d2l_mgpu.train.folder import without_waiting


class Report:
    """The reports of one rank; what concerns all of them, rank 0 says.

    `events` is the file that gets events as lines of JSON; without `progress` there is
    no bar.
    """

    def __init__(self, group: Group, events: Path | None, *, progress: bool) -> None:
        self.group, self.events, self.progress = group, events, progress

    def bar(self, done: int, total: int) -> Any:
        """A progress bar on rank 0, where somebody watches."""
        from tqdm import tqdm

        watched = (
            self.group.rank == 0
            and self.progress
            and sys.stderr
            and sys.stderr.isatty()
        )
        return tqdm(total=total, initial=done, unit="step", disable=not watched)

    def epoch(self, epoch: Epoch, step: int) -> None:
        """Say that `epoch` has ended with `step`: on standard output, and as an
        event."""
        figures = {
            "epoch": epoch.number,
            "loss": epoch.loss,
            "accuracy": epoch.accuracy,
            "seconds": epoch.seconds,
            "world_size": self.group.world_size,
        }
        try:
            with _named("standard output"):
                self.say(_json(figures), sys.stdout)
        except OSError:  # Python would fail once more, with other words, when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise
        self.log_once("epoch", step=step, **figures)

    def say(self, text: str, file: TextIO | None = None) -> None:
        if self.group.rank == 0:
            print(text, file=file or sys.stderr, flush=True)

    def log_once(self, event: str, **facts: Any) -> None:
        if self.group.rank == 0:
            self.log(event, **facts)

    def log(self, event: str, **facts: Any) -> None:
        """Append a line to the events; in one write, so that the ranks' lines stay
        whole."""
        if self.events is not None:
            with (
                _named(self.events),
                open(self.events, "a", opener=without_waiting) as file,
            ):
                file.write(_json({"event": event, **facts}) + "\n")


@contextmanager
def _named(file: Path | str) -> Iterator[None]:
    """Inside, an OSError says which file it is about: on a full disk, writing does
    not."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(file)) from None


def _json(facts: dict[str, Any]) -> str:
    """One line of JSON, which has no infinity and no NaN: a loss that has diverged is
    null."""
    bad = {
        name
        for name, x in facts.items()
        if isinstance(x, float) and not math.isfinite(x)
    }
    return json.dumps({name: None if name in bad else x for name, x in facts.items()})
