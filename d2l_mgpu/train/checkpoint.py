"""Checkpoints that survive a kill at any moment, and that say so when they are damaged.

A checkpoint is a folder `step-00000120`: the files of `torch.distributed.checkpoint`, to which
every rank has written its part, and `checkpoint.json`, which names the run and holds a SHA-256 of
each file and of itself. It is written as `.writing-00000120` beside the others, flushed to disk
and only then renamed, so that a folder with a final name is whole. The newest two are kept: if
the disk damages one, there is another.

With several nodes, the folder must lie on a file system that all of them see.
"""

import os
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from d2l_mgpu.processes.heartbeat import node_name
from d2l_mgpu.processes.lost_peer import blames_peer
from d2l_mgpu.train.checksums import CheckpointError, check_files, seal, sealed

FORMAT = "d2l_mgpu checkpoint 1"
KEPT = 2
State = dict[str, dict[str, Any]]
T = TypeVar("T")


def steps(folder: Path) -> list[Path]:
    """Return the complete checkpoints in `folder`, the newest first."""
    found = [path for path in folder.glob("step-*") if re.fullmatch(r"step-\d{8,}", path.name)]
    return sorted(found, key=lambda path: int(path.name[5:]), reverse=True)


def save(folder: Path, step: int, state: State, facts: dict[str, Any]) -> Path:
    """Write `state[part][name]` as the checkpoint of `step`, and `facts` into `checkpoint.json`.

    A collective: every rank calls it, and what ranks hold under the same name is the same.
    Raises CheckpointError when it cannot be written; the checkpoints that were there stay.
    """
    final, writing = folder / f"step-{step:08}", folder / f".writing-{step:08}"

    def prepare() -> None:
        for leftover in folder.glob(".writing-*"):  # of a run that was killed while it wrote
            shutil.rmtree(leftover)
        writing.mkdir(parents=True)

    def finish() -> None:
        files = {path.name for path in writing.iterdir()}
        parts = dcp.FileSystemReader(writing).read_metadata().storage_data or {}
        if elsewhere := {part.relative_path for part in parts.values()} - files:
            raise CheckpointError(
                f"{writing / min(elsewhere)} was written by another node, but cannot be seen on "
                f"{node_name()}: --checkpoint-dir must name one folder that all nodes share."
            )
        seal(writing, {"format": FORMAT, "step": step, "facts": facts})
        if final.exists():  # this very step, before the run was set back
            shutil.rmtree(final)
        writing.rename(final)
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)  # the rename itself
        os.close(handle)
        # Newer ones are damaged, and the run was set back behind them: they do not count.
        for old in [path for path in steps(folder) if int(path.name[5:]) <= step][KEPT:]:
            shutil.rmtree(old)

    try:
        _on_rank_0(prepare)
        _quietly(dcp.save, state, checkpoint_id=writing)
        _on_rank_0(finish)
    except (OSError, dcp.CheckpointException) as error:
        raise CheckpointError(
            f"The checkpoint of step {step} could not be written to {folder}, where "
            f"{_free(folder)} MB are free: {_reason(error)}. Make room, end another run that uses "
            "the folder, or choose another --checkpoint-dir; earlier checkpoints are untouched."
        ) from error
    return final


def check(path: Path) -> dict[str, Any]:
    """Return the facts of the checkpoint at `path`.

    Raises CheckpointError unless every bit is right.
    """
    record = sealed(path)
    if record["format"] != FORMAT:
        raise CheckpointError(f"{path} has format {record['format']!r}, but this reads {FORMAT!r}.")
    check_files(path, record)
    return record["facts"]


def find(folder: Path, fall_back: bool = False) -> tuple[Path, dict[str, Any], list[str]] | None:
    """Return the newest checkpoint in `folder`, its facts, and what was wrong with newer ones.

    None where there is none; `folder` is made then. A damaged one raises CheckpointError, unless
    `fall_back` allows the one before it, and so does a folder that cannot be written to. A
    collective: rank 0 looks, so that all ranks resume from the same one.
    """

    def look() -> tuple[Path, dict[str, Any], list[str]] | None:
        try:  # now, not after the first epoch
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ".writing-").mkdir(exist_ok=True)
            (folder / ".writing-").rmdir()
        except OSError as error:
            raise CheckpointError(
                f"{folder} cannot take checkpoints: {error.strerror}. Choose another "
                "--checkpoint-dir."
            ) from None
        problems: list[str] = []
        for path in steps(folder):
            try:
                return path, check(path), problems
            except CheckpointError as error:
                problems.append(str(error))
                if not fall_back:
                    raise CheckpointError(
                        f"{error} To go on from the checkpoint before it, add --fall-back."
                    ) from None
        if problems:
            raise CheckpointError(" ".join([*problems, "No checkpoint before it is left."]))
        return None

    return _on_rank_0(look)


def load(path: Path, state: State) -> None:
    """Fill `state` in place from the checkpoint at `path`, which `check` has found whole.

    A collective. Raises CheckpointError when a rank cannot read its part, or when the checkpoint
    lacks a key of `state`, or has one besides the ranks' own that `state` lacks: a momentum that
    nobody loads would be lost without a word.
    """
    there = set(dcp.FileSystemReader(path).read_metadata().state_dict_metadata)
    wanted = {f"{part}.{name}" for part, entries in state.items() for name in entries}
    if odd := sorted(wanted - there) + sorted(k for k in there - wanted if k[:5] != "ranks"):
        raise CheckpointError(
            f"{path} does not fit this run: {odd[0]} (and {len(odd) - 1} more) is only in one of "
            "them. Resume with the options it was written with."
        )
    try:
        _quietly(dcp.load, state, checkpoint_id=path)
    except dcp.CheckpointException as error:
        raise CheckpointError(f"{path} cannot be read on every node: {_reason(error)}.") from error


def load_weights(folder: str | Path) -> dict[str, Tensor]:
    """Return the `state_dict` of the model in the newest checkpoint in `folder`, on the CPU.

    Raises FileNotFoundError when there is no checkpoint, CheckpointError when it is damaged.
    """
    newest = steps(Path(folder))
    if not newest:
        raise FileNotFoundError(
            f"There is no checkpoint in {folder}: step-* folders are looked for."
        )
    check(newest[0])
    metadata = dcp.FileSystemReader(newest[0]).read_metadata().state_dict_metadata
    weights = {
        key.removeprefix("model."): torch.empty(entry.size, dtype=entry.properties.dtype)
        for key, entry in sorted(metadata.items())
        if key.startswith("model.") and isinstance(entry, TensorStorageMetadata)
    }
    _quietly(dcp.load, {"model": weights}, checkpoint_id=newest[0], no_dist=True)
    return weights


def _on_rank_0(act: Callable[[], T]) -> T:
    """Return `act()` of rank 0 on every rank, or raise its OSError or CheckpointError on each."""
    outcome: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            outcome[0] = act()
        except (OSError, CheckpointError) as error:
            outcome[1] = error
    dist.broadcast_object_list(outcome, src=0)
    result, problem = outcome
    if problem is not None:
        raise problem
    return result


def _quietly(act: Callable[..., Any], *args: Any, **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it works without other processes: we know
        act(*args, **options)


def _free(folder: Path) -> str:
    try:
        return f"{shutil.disk_usage(folder).free / 2**20:.0f}"
    except OSError:  # the folder itself is gone
        return "no"


def _reason(error: BaseException) -> BaseException:
    """The first cause: `torch.distributed.checkpoint` collects those of all ranks. A lost peer is
    raised as such, since it is not a matter of the disk."""
    if isinstance(error, dcp.CheckpointException) and error.failures:
        return _reason(next(iter(error.failures.values()))[0])
    if blames_peer(error):
        raise error from None
    return error
