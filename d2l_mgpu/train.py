"""Train a network on any number of processes and machines.

On one device, on two, and on two machines (this on each of them)::

    python -m d2l_mgpu.train
    torchrun --nproc-per-node=2 -m d2l_mgpu.train
    torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d
             --rdzv-endpoint=<first machine>:29400 -m d2l_mgpu.train

All of them take the same steps. Standard output gets one line of JSON an epoch. SIGTERM and
Ctrl-C end the run after the current step, with a checkpoint and exit code 75; the same command
then goes on from there.
"""

import argparse
import contextlib
import dataclasses
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch import nn

from d2l_mgpu import checkpoint
from d2l_mgpu.data import load_data_fashion_mnist
from d2l_mgpu.models import LeNet, resnet18
from d2l_mgpu.options import read
from d2l_mgpu.processes import Group, process_group
from d2l_mgpu.trainer import Recipe, Trainer

STOPPED = 75  # EX_TEMPFAIL of sysexits.h: nothing is wrong, try again later


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Train as the options in `arguments` (those of the command line) say.

    Returns the epochs that this run has finished, as they are printed. Ends the process with
    SystemExit: 2 and one sentence for options and files that cannot be right, 75 after a stop.
    """
    options = read(arguments, __doc__)
    with process_group(options.timeout) as group:
        try:
            return _Run(options, group).train()
        except _Stopped:
            pass  # all ranks together, so that they can take leave of each other
        except (checkpoint.CheckpointError, OSError, ValueError) as error:
            # Each rank, since what stops one, a disk for instance, need not stop the others.
            who = f" rank {group.rank}:" if group.world_size > 1 else ""
            print(f"d2l_mgpu.train:{who} {error}", file=sys.stderr, flush=True)
            raise SystemExit(2) from None
    raise SystemExit(STOPPED)


class _Stopped(Exception):
    """All ranks have ended their run after the same step, because one was asked to."""


class _Run:
    """One run as its options say: trains, saves, resumes, and reports."""

    def __init__(self, options: argparse.Namespace, group: Group) -> None:
        self.options, self.group = options, group
        self.folder: Path | None = options.checkpoint_dir
        self.log("start", rank=group.rank, pid=os.getpid(), node=group.node)
        with contextlib.redirect_stdout(sys.stderr if group.rank == 0 else None):
            train_iter, self.test_iter = load_data_fashion_mnist(
                options.batch_size,
                name=options.dataset,
                num_train=options.num_train,
                num_test=options.num_test,
                source=options.source,
            )
        images, names = train_iter.dataset, [field.name for field in dataclasses.fields(Recipe)]
        recipe = Recipe(**{name: getattr(options, name) for name in names})
        self.facts = {"model": options.model, "images": f"{len(images)} of {images.name}"}
        self.facts |= dataclasses.asdict(recipe)
        self.agree()
        self.trainer = Trainer(_net(options), images, recipe, group)
        if recipe.fast:
            self.say(f"Fast: {self.trainer.how}.")
        self.saved: int | None = None  # the step of the newest checkpoint
        if self.folder is not None:
            self.resume(self.folder)

    def train(self) -> list[dict[str, Any]]:
        """Take all steps that are left; return the epochs finished on the way."""
        trainer, options, history = self.trainer, self.options, []
        with self.bar() as bar:
            while trainer.sampler.epoch < options.epochs:
                for loss in trainer.steps():
                    bar.update()
                    if trainer.step % options.events_every == 0:
                        dist.all_reduce(mean := loss.cpu())  # gloo takes nothing else from MPS
                        self.log_once("step", step=trainer.step, loss=mean.item())
                    if trainer.sampler.position < len(trainer.sampler):  # else see below
                        self.save_or_stop(options.checkpoint_every)
                history.append(trainer.finish_epoch(self.test_iter))
                self.say(_json(history[-1]), sys.stdout)
                self.log_once("epoch", step=trainer.step, **history[-1])
                self.save_or_stop(every=1)
        self.log_once("end", step=trainer.step)
        return history

    def agree(self) -> None:
        """ValueError unless all ranks do the same: nodes have command lines of their own, and one
        that cannot download the images would draw them."""
        own = {name: getattr(self.options, name) for name in ("checkpoint_every", "events_every")}
        own |= self.facts | {"checkpoint_dir": self.folder is not None}
        everyone: list[dict[str, Any]] = [{}] * self.group.world_size
        dist.all_gather_object(everyone, own)
        for rank, theirs in enumerate(everyone):
            for name, value in theirs.items():
                if value != everyone[0][name]:
                    raise ValueError(
                        f"rank {rank} has {name.replace('_', '-')} {value}, but rank 0 has "
                        f"{everyone[0][name]}: use the same options and images on all nodes."
                    )

    def resume(self, folder: Path) -> None:
        """Go on from the newest checkpoint in `folder`, if there is one."""
        found = checkpoint.find(folder, self.options.fall_back)
        if found is None:
            return
        path, facts, problems = found
        if self.options.resume == "never":
            raise ValueError(
                f"{folder} holds {path.name} of an earlier run, and --resume never does not touch "
                "it: remove it, or name another --checkpoint-dir."
            )
        self.compare(path, facts)
        self.trainer.load(path, facts)
        self.saved = self.trainer.step
        for problem in problems:
            self.say(f"{problem} Going back to {path.name}.")
        place, before, now = self.trainer.sampler, facts["world_size"], self.group.world_size
        where = f"epoch {place.epoch + 1}, {place.position} of {len(place)} batches done"
        if place.epoch >= self.options.epochs:
            where = f"all {place.epoch} epochs are done already, nothing is left to train"
        self.say(f"Resuming from {path.name}: {where}.")
        if before != now:
            self.say(
                f"The number of processes was {before} and is {now}: the batches stay the same, "
                "but are cut into other shards, so that sums round differently."
            )
        self.log_once("resume", step=self.saved, path=path.name, saved_by=before)

    def compare(self, path: Path, facts: dict[str, Any]) -> None:
        """ValueError unless the checkpoint is of a run with the same recipe."""
        free = "epochs" if self.options.schedule == "constant" else None
        theirs = dataclasses.asdict(Recipe()) | facts  # older checkpoints lack newer options
        for name, ours in self.facts.items():
            if name != free and theirs.get(name) != ours:
                raise ValueError(
                    f"{path} was written with {name.replace('_', '-')} {theirs.get(name)}, but "
                    f"this run has {ours}: resume with the same, or name another --checkpoint-dir."
                )

    def save_or_stop(self, every: int | None) -> None:
        """Save if `every` divides the step; leave, having saved, if a rank was asked to."""
        step, stop = self.trainer.step, self.group.all_stop()
        due = stop or (every is not None and step % every == 0)
        if self.folder is not None and due and step != self.saved:
            path = self.trainer.save(self.folder, self.facts)
            self.saved = step
            self.log_once("checkpoint", step=step, path=path.name)
        if stop and step < self.trainer.num_steps:
            kept = f"the same command goes on from {self.folder}"
            lost = "nothing was saved, because there is no --checkpoint-dir"
            self.say(f"Stopped after step {step}; {kept if self.folder else lost}.")
            self.log_once("stop", step=step)
            raise _Stopped

    def bar(self) -> Any:
        """A progress bar on rank 0, where somebody watches."""
        from tqdm import tqdm

        watched = self.group.rank == 0 and sys.stderr.isatty() and not self.options.no_progress
        total, done = self.trainer.num_steps, self.trainer.step
        return tqdm(total=total, initial=done, unit="step", disable=not watched)

    def say(self, text: str, file: TextIO | None = None) -> None:
        if self.group.rank == 0:
            print(text, file=file or sys.stderr, flush=True)

    def log_once(self, event: str, **facts: Any) -> None:
        if self.group.rank == 0:
            self.log(event, **facts)

    def log(self, event: str, **facts: Any) -> None:
        """Append a line to the events; in one write, so that the ranks' lines stay whole."""
        if self.options.events is not None:
            with self.options.events.open("a") as file:
                file.write(_json({"event": event, **facts}) + "\n")


def _json(facts: dict[str, Any]) -> str:
    """One line of JSON, which has no infinity and no NaN: a loss that has diverged is null."""
    bad = {name for name, x in facts.items() if isinstance(x, float) and not math.isfinite(x)}
    return json.dumps({name: None if name in bad else x for name, x in facts.items()})


def _net(options: argparse.Namespace) -> nn.Module:
    """The network that was asked for; its first weights depend on the seed only."""
    if options.model == "lenet":
        return LeNet(seed=options.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        return resnet18(10)


if __name__ == "__main__":
    main()
