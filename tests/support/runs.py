"""Runs of `d2l_mgpu.train` as users start them: their processes, their events, what they leave."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor

from d2l_mgpu.train import load_weights
from tests.support import ROOT

TRAIN = ["-m", "d2l_mgpu.train", "--no-progress", "--source", "generated"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone"]


class Traces:
    """What a training leaves in `folder`: its events and its checkpoints."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.events_file = folder, folder / "events"
        self.checkpoints = folder / "checkpoints"
        self.read_so_far = 0
        self.events: list[dict[str, Any]] = []

    def read_events(self) -> None:
        """Add to `self.events` what has happened since the last time."""
        text = self.events_file.read_bytes() if self.events_file.exists() else b""
        end = text.rfind(b"\n") + 1
        self.events += map(json.loads, text[self.read_so_far : end].splitlines())
        self.read_so_far = end

    def all(self, event: str) -> list[dict[str, Any]]:
        """The events of this kind so far."""
        self.read_events()
        return [found for found in self.events if found["event"] == event]

    def weights(self) -> dict[str, Tensor]:
        return load_weights(self.checkpoints)


class Run(Traces):
    """One run in `folder`: alone where `torchrun` is None, else with these options of torchrun."""

    def __init__(
        self,
        folder: Path,
        *options: object,
        torchrun: list[str] | None = None,
        checkpoints: bool = True,
    ) -> None:
        super().__init__(folder)
        self.temporary, self.waited_for = folder / "tmp", 0
        self.temporary.mkdir(exist_ok=True)
        words = [*TORCHRUN, *torchrun] if torchrun is not None else []
        words += [*TRAIN, "--events", self.events_file]
        words += ["--checkpoint-dir", self.checkpoints] if checkpoints else []
        self.process = psutil.Popen(
            [sys.executable, *map(str, [*words, *options])],
            env=os.environ
            | {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=(folder / "stderr").open("ab"),
            text=True,
        )

    def wait_for(self, event: str, step: int = 0) -> dict[str, Any]:
        """Wait for an `event` of at least `step`, later than the last one waited for."""
        while True:
            ended = self.process.poll() is not None
            self.read_events()
            for found in self.events[self.waited_for :]:
                self.waited_for += 1
                if found["event"] == event and found.get("step", 0) >= step:
                    return found
            assert not ended, f"no {event} of step {step}: {self.errors()}"
            time.sleep(0.002)

    def end(self) -> int:
        """Wait for the end, keep what was printed in `self.epochs`; return the exit code."""
        out, _ = self.process.communicate()
        self.read_events()
        self.epochs = [json.loads(line) for line in out.splitlines()]
        return self.process.returncode

    def errors(self) -> str:
        return (self.folder / "stderr").read_text()

    def stop(self) -> None:
        """End whatever still runs."""
        for process in [*self.descendants(), self.process]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()

    def descendants(self) -> list[psutil.Process]:
        try:
            return self.process.children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def same_bits(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


def figures(epochs: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What must be equal in two runs: everything but the seconds."""
    return [(e["epoch"], e["loss"], e["accuracy"]) for e in epochs]
