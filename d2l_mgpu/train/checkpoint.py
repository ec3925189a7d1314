"""Checkpoints that survive a kill at any moment, and that say so when they are damaged.

A checkpoint is a folder `step-00000120`: the files of `torch.distributed.checkpoint`,
to which every rank has written its part, and `checkpoint.json`, which names the run,
says where each tensor lies, and holds a SHA-256 of each file and of itself. It is
written as `.writing-00000120` beside the others, flushed to disk and only then renamed,
so that a folder with a final name is whole. The newest two are kept: if the disk
damages one, there is another.

With several nodes, the folder must lie on a file system that all of them see.
"""

import json
import os
import shutil
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.metadata import Metadata

from d2l_mgpu.processes.heartbeat import node_name
from d2l_mgpu.processes.lost_peer import blames_peer
from d2l_mgpu.train.checksums import CheckpointError, check_files, seal, sealed
from d2l_mgpu.train.folder import discard, step_of, steps
from d2l_mgpu.train.tensors import Place, are_places, places, read
from d2l_mgpu.train.together import on_all_ranks, on_rank_0

FORMAT = "d2l_mgpu checkpoint 2"
KEPT = 2
State = dict[str, dict[str, Any]]  # tensors, in parts: model, optimizer, ranks


@dataclass(frozen=True)
class Checkpoint:
    """What `checkpoint.json` says: the `facts` that were saved, and where each tensor
    lies."""

    path: Path
    step: int
    facts: dict[str, Any]
    tensors: dict[str, Place]


def save(folder: Path, step: int, state: State, facts: dict[str, Any]) -> Path:
    """Write `state[part][name]` as the checkpoint of `step`, and `facts` into
    `checkpoint.json`.

    A collective: every rank calls it, and what ranks hold under the same name is the
    same. Raises CheckpointError when it cannot be written; then the folder is as it was
    before. Raises ValueError or TypeError for a step, state or facts that could not be
    found or loaded again.
    """
    _must_come_back(step, state, facts)
    final, writing = folder / f"step-{step:08}", folder / f".writing-{step:08}"

    def finish(metadata: Metadata) -> None:
        files, tensors = {path.name for path in writing.iterdir()}, places(metadata)
        if elsewhere := {name for name, *_ in tensors.values()} - files:
            raise CheckpointError(
                f"{writing / min(elsewhere)} was written by another node, but cannot "
                f"be seen on {node_name()}: --checkpoint-dir must name one folder that "
                "all nodes share."
            )
        seal(
            writing,
            {"format": FORMAT, "step": step, "facts": facts, "tensors": tensors},
        )
        discard(final)  # of this very step, before the run was set back
        writing.rename(final)
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)  # the rename itself
        os.close(handle)
        # Newer ones are damaged, and the run was set back behind them: they do not
        # count.
        for old in [path for path in steps(folder) if step_of(path) <= step][KEPT:]:
            discard(old)

    try:
        on_rank_0(lambda: writing.mkdir(parents=True))
        with warnings.catch_warnings():
            # that it works without other processes: we know
            warnings.simplefilter("ignore")
            metadata = dcp.save(state, checkpoint_id=writing)
        on_rank_0(lambda: finish(metadata))
    except (OSError, dcp.CheckpointException) as error:
        raise CheckpointError(
            f"The checkpoint of step {step} could not be written to {folder}, where "
            f"{_free(folder)} MB are free: {_reason(error)}. Make room or choose "
            "another --checkpoint-dir; earlier checkpoints are untouched."
        ) from error
    finally:
        if dist.get_rank() == 0:
            with suppress(OSError):
                # what is left of a failure, on a disk that may be full
                discard(writing)
    return final


def check(path: Path) -> Checkpoint:
    """Return what the checkpoint at `path` says of itself.

    Raises CheckpointError unless every bit is as it was written.
    """
    record = sealed(path)
    if record.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {record.get('format')!r}, but this reads {FORMAT!r}: "
            "go on with the version that wrote it, or start anew in another folder."
        )
    check_files(path, record)
    match record:
        case {
            "step": int(step),
            "facts": dict(facts),
            "tensors": tensors,
            "files": files,
        } if step == step_of(path) and are_places(tensors, files):
            return Checkpoint(path, step, facts, tensors)
    raise CheckpointError(
        f"{path / 'checkpoint.json'} does not describe this checkpoint."
    )


def find(folder: Path, fall_back: bool = False) -> tuple[Checkpoint, list[str]] | None:
    """Return the newest checkpoint in `folder`, and what was wrong with newer ones.

    None where there is none. A damaged one raises CheckpointError, unless `fall_back`
    allows the one before it. A collective: rank 0 looks, so that all ranks resume from
    the same one.
    """

    def look() -> tuple[Checkpoint, list[str]] | None:
        problems: list[str] = []
        for path in steps(folder):
            try:
                return check(path), problems
            except CheckpointError as error:
                problems.append(str(error))
                if not fall_back:
                    raise CheckpointError(
                        f"{error} To go on from the checkpoint before it, add "
                        "--fall-back."
                    ) from None
        if problems:
            raise CheckpointError(
                " ".join([*problems, "No checkpoint before it is left."])
            )
        return None

    return on_rank_0(look)


def load(checkpoint: Checkpoint, state: State) -> None:
    """Fill `state` in place from the `checkpoint` that `check` has found whole.

    A collective. Raises CheckpointError, and fills nothing, when a rank cannot read its
    part, when a tensor has another shape or dtype, or when the checkpoint lacks a key
    of `state`, or has one besides the ranks' own that `state` lacks: a momentum that
    nobody loads would be lost without a word.
    """
    path, there = checkpoint.path, checkpoint.tensors
    wanted = {
        f"{part}.{name}": x
        for part, entries in state.items()
        for name, x in entries.items()
    }
    other_options = "Resume with the options it was written with."

    def read_all() -> dict[str, Tensor]:
        shared = {name for name in there if not name.startswith("ranks.")}
        if odd := sorted(wanted.keys() - there.keys()) + sorted(shared - wanted.keys()):
            raise CheckpointError(
                f"{path} does not fit this run: {odd[0]} (and {len(odd) - 1} more) is "
                f"only in one of them. {other_options}"
            )
        found = {name: read(path, name, there[name]) for name in wanted}
        for name, ours in wanted.items():
            if _kind(found[name]) != _kind(ours):
                raise CheckpointError(
                    f"{path} does not fit this run: its {name} is "
                    f"{_kind(found[name])}, but here it is {_kind(ours)}. "
                    f"{other_options}"
                )
        return found

    for name, value in on_all_ranks(read_all).items():
        wanted[name].detach().copy_(value)


def load_weights(folder: str | Path) -> dict[str, Tensor]:
    """Return the `state_dict` of the model in the newest checkpoint in `folder`, on the
    CPU.

    Raises FileNotFoundError when there is no checkpoint, CheckpointError when it is
    damaged. No file can make this run code, whoever has written it. That the weights
    are those of the run you think of, nothing here can tell: the checksums find
    accidents, not forgeries. Take checkpoints from people you trust.
    """
    newest = steps(Path(folder))
    if not newest:
        raise FileNotFoundError(
            f"There is no checkpoint in {folder}: step-* folders are looked for."
        )
    found = check(newest[0])
    return {
        name.removeprefix("model."): read(found.path, name, place)
        for name, place in sorted(found.tensors.items())
        if name.startswith("model.")
    }


def _must_come_back(step: int, state: State, facts: dict[str, Any]) -> None:
    if type(step) is not int or step < 0:
        raise ValueError(f"step must be a whole number of at least 0, not {step!r}.")
    for part, entries in state.items():
        for name, value in entries.items():
            if type(value) not in (Tensor, nn.Parameter):
                raise TypeError(
                    f"A checkpoint holds tensors, but {part}.{name} is a "
                    f"{type(value).__name__}: put numbers and text into `facts`, and "
                    "leave out what JSON cannot say."
                )
    json.dumps(facts)  # its TypeError comes on every rank, and now


def _kind(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} of {tensor.dtype}"


def _free(folder: Path) -> str:
    try:
        return f"{shutil.disk_usage(folder).free / 2**20:.0f}"
    except OSError:  # the folder itself is gone
        return "no"


def _reason(error: BaseException) -> BaseException:
    """The first cause: `torch.distributed.checkpoint` collects those of all ranks. A
    lost peer is raised as such, since it is not a matter of the disk."""
    if isinstance(error, dcp.CheckpointException) and error.failures:
        return _reason(next(iter(error.failures.values()))[0])
    if blames_peer(error):
        raise error from None
    return error
