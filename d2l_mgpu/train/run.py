"""One run as its options say: it begins or resumes, trains, saves, and stops when asked
to."""

import argparse
import contextlib
import dataclasses
import math
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn

from d2l_mgpu.data import load_data_fashion_mnist
from d2l_mgpu.history import Epoch
from d2l_mgpu.models import LeNet, resnet18
from d2l_mgpu.processes.group import Group
from d2l_mgpu.train import checkpoint
from d2l_mgpu.train.folder import one_writer
from d2l_mgpu.train.recipe import Recipe
from d2l_mgpu.train.report import Report
from d2l_mgpu.train.trainer import Trainer


class Stopped(Exception):
    """All ranks have ended their run after the same step, because one was asked to."""


class TrainingRun:
    """One run as its options say: trains, saves and resumes."""

    def __init__(self, options: argparse.Namespace, group: Group) -> None:
        self.options, self.group = options, group
        self.folder: Path | None = options.checkpoint_dir
        self.report = Report(group, options.events, progress=not options.no_progress)
        self.report.log("start", rank=group.rank, pid=os.getpid(), node=group.node)
        with contextlib.redirect_stdout(sys.stderr if group.rank == 0 else None):
            train_iter, self.test_iter = load_data_fashion_mnist(
                options.batch_size,
                name=options.dataset,
                num_train=options.num_train,
                num_test=options.num_test,
                source=options.source,
            )
        images, names = (
            train_iter.dataset,
            [field.name for field in dataclasses.fields(Recipe)],
        )
        recipe = Recipe(**{name: getattr(options, name) for name in names})
        self.facts = {
            "model": options.model,
            "images": f"{len(images)} of {images.name}",
        }
        self.facts |= dataclasses.asdict(recipe)
        self.agree()
        self.trainer = Trainer(_net(options), images, recipe, group)
        if recipe.fast:
            self.report.say(f"Fast: {self.trainer.how}.")
        self.saved: int | None = None  # the step of the newest checkpoint

    def train(self) -> list[Epoch]:
        """Go on from the newest checkpoint, if there is one, to the end.

        Returns the epochs finished on the way.
        """
        if self.folder is None:
            return self.take_steps()
        # After a restart rank 0 may be on another node, and the last one not yet given
        # up for dead.
        restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        with one_writer(
            self.folder, self.options.timeout / 2 if restarted else 0.0
        ) as note:
            if note:
                self.report.say(note)
            self.resume(self.folder)
            return self.take_steps()

    def take_steps(self) -> list[Epoch]:
        """Take all steps that are left; return the epochs finished on the way."""
        trainer, options, history = self.trainer, self.options, []
        with self.report.bar(trainer.step, trainer.num_steps) as bar:
            while trainer.sampler.epoch < options.epochs:
                for loss in trainer.steps():
                    bar.update()
                    if trainer.step % options.events_every == 0:
                        # gloo takes nothing else from MPS
                        dist.all_reduce(mean := loss.cpu())
                        self.report.log_once(
                            "step", step=trainer.step, loss=mean.item()
                        )
                        self.require(math.isfinite(mean.item()))
                    # then see below
                    ended = trainer.sampler.position == len(trainer.sampler)
                    if not ended and self.save(options.checkpoint_every):
                        self.stop()
                self.require(trainer.is_finite())
                history.append(trainer.finish_epoch(self.test_iter))
                asked_to_stop = self.save(every=1)
                self.report.epoch(history[-1], trainer.step)
                if asked_to_stop and trainer.step < trainer.num_steps:
                    self.stop()
        self.report.log_once("end", step=trainer.step)
        return history

    def agree(self) -> None:
        """Raise ValueError unless all ranks do the same: nodes have command lines of
        their own, and one that cannot download the images would draw them."""
        collectives = ("checkpoint_every", "events_every", "allow_nan")
        own = {name: getattr(self.options, name) for name in collectives}
        own |= self.facts | {"checkpoint_dir": self.folder is not None}
        everyone: list[dict[str, Any]] = [{}] * self.group.world_size
        dist.all_gather_object(everyone, own)
        for rank, theirs in enumerate(everyone):
            for name, value in theirs.items():
                if value != everyone[0][name]:
                    raise ValueError(
                        f"rank {rank} has {name.replace('_', '-')} {value}, but rank 0 "
                        f"has {everyone[0][name]}: use the same options and images on "
                        "all nodes."
                    )

    def resume(self, folder: Path) -> None:
        """Go on from the newest checkpoint in `folder`, if there is one."""
        found = checkpoint.find(folder, self.options.fall_back)
        if found is None:
            return
        saved, problems = found
        path = saved.path
        if self.options.resume == "never":
            raise ValueError(
                f"{folder} holds {path.name} of an earlier run, and --resume never "
                "does not touch it: remove it, or name another --checkpoint-dir."
            )
        self.compare(path, saved.facts)
        before, now = self.trainer.load(saved), self.group.world_size
        self.saved = self.trainer.step
        for problem in problems:
            self.report.say(f"{problem} Going back to {path.name}.")
        place = self.trainer.sampler
        where = (
            f"epoch {place.epoch + 1}, {place.position} of {len(place)} batches done"
        )
        if place.epoch >= self.options.epochs:
            where = (
                f"all {place.epoch} epochs are done already, nothing is left to train"
            )
        self.report.say(f"Resuming from {path.name}: {where}.")
        if before != now:
            self.report.say(
                f"The number of processes was {before} and is {now}: the batches stay "
                "the same, but are cut into other shards, so that sums round "
                "differently."
            )
        self.report.log_once("resume", step=self.saved, path=path.name, saved_by=before)

    def compare(self, path: Path, facts: dict[str, Any]) -> None:
        """Raise ValueError unless the checkpoint is of a run with the same recipe."""
        free = "epochs" if self.options.schedule == "constant" else None
        # older checkpoints lack newer options
        theirs = dataclasses.asdict(Recipe()) | facts
        for name, ours in self.facts.items():
            if name != free and theirs.get(name) != ours:
                raise ValueError(
                    f"{path} was written with {name.replace('_', '-')} "
                    f"{theirs.get(name)}, but this run has {ours}: resume with the "
                    "same, or name another --checkpoint-dir."
                )

    def require(self, finite: bool) -> None:
        """Raise ValueError unless all is `finite`, or need not be."""
        if not finite and not self.options.allow_nan:
            raise ValueError(
                f"By step {self.trainer.step} the loss or a weight has become NaN or "
                "infinite, and no checkpoint is written of that: begin anew with a "
                "smaller --lr, or add --allow-nan to go on."
            )

    def save(self, every: int | None) -> bool:
        """Save if `every` divides the step or a rank was asked to stop; return whether
        one was."""
        step, stop = self.trainer.step, self.group.all_stop()
        due = stop or (every is not None and step % every == 0)
        if self.folder is not None and due and step != self.saved:
            self.require(self.trainer.is_finite())
            path = self.trainer.save(self.folder, self.facts)
            self.saved = step
            self.report.log_once("checkpoint", step=step, path=path.name)
        return stop

    def stop(self) -> NoReturn:
        """Say what is kept, and leave."""
        step, kept = self.trainer.step, f"the same command goes on from {self.folder}"
        lost = "nothing was saved, because there is no --checkpoint-dir"
        self.report.say(f"Stopped after step {step}; {kept if self.folder else lost}.")
        self.report.log_once("stop", step=step)
        raise Stopped


def _net(options: argparse.Namespace) -> nn.Module:
    """The network that was asked for; its first weights depend on the seed only."""
    if options.model == "lenet":
        return LeNet(seed=options.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        return resnet18(10)
