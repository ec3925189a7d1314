"""All-reduce for ranks on one host: their tensors lie in memory that all of them see.

No numbers are sent. Each rank sums its own part of all tensors, and writes the sum into
all of them: a reduce-scatter and an all-gather in one. Only the two barriers, before
and after, need messages.
"""

import math
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from mmap import mmap
from tempfile import NamedTemporaryFile, gettempdir
from typing import IO, Any

import torch
import torch.distributed as dist
from torch import Tensor

from d2l_mgpu.arguments import integer

FOLDERS = ("/dev/shm", gettempdir())  # Linux keeps files of the first in memory only
PAGE = 4096  # bytes; each tensor begins on a page of its own
# numbers: what is summed is still in the cache when it is written to the others
CHUNK = 2**16


def shared_tensors(
    shape: Sequence[int], dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Return one tensor of zeros per rank, on the CPU: what a rank writes there, all
    ranks see.

    A collective; all ranks give the same shape and dtype. The memory is a file that has
    lost its name when this returns, and so is gone with the last rank that uses it,
    however that ends.

    Raises RuntimeError on all ranks where there is no room, or a rank cannot see the
    memory of rank 0; ValueError for a shape that is none, or not the same on all ranks.
    """
    sizes = [integer("each size in shape", size, least=0, most=2**63) for size in shape]
    world_size, num_bytes = dist.get_world_size(), math.prod(sizes) * dtype.itemsize
    agree(sizes, dtype)
    stride = max(1, -(-num_bytes // PAGE)) * PAGE
    file = reserve(world_size * stride) if dist.get_rank() == 0 else None
    with file or nullcontext():  # removes the file, when all have mapped it
        names = [file.name if file else ""]
        dist.broadcast_object_list(names, src=0)
        if not names[0]:
            raise RuntimeError(
                f"{world_size} tensors of {num_bytes:,} bytes do not fit into "
                f"{FOLDERS[0]}, nor into {FOLDERS[1]}; make room, or set TMPDIR to a "
                "folder where there is some."
            )
        blind = torch.zeros(1, dtype=torch.int32)
        try:  # not torch.from_file: it makes the file where there is none
            with open(names[0], "r+b") as same_file:
                memory = mmap(same_file.fileno(), world_size * stride)
        except OSError:
            blind += 1
        dist.all_reduce(blind)
    if blind:
        raise RuntimeError(
            f"{blind.item()} of {world_size} ranks cannot open {names[0]} of rank 0: "
            "only ranks on one host, and in one container, can share memory; use "
            "all_reduce for the others."
        )
    parts = torch.frombuffer(memory, dtype=torch.uint8).view(world_size, stride)[
        :, :num_bytes
    ]
    return [part.view(dtype).view(shape) for part in parts]


def agree(sizes: list[int], dtype: torch.dtype) -> None:
    """Raise ValueError on all ranks unless they want tensors of one shape and dtype."""
    wanted: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(wanted, (sizes, str(dtype)))
    for rank, theirs in enumerate(wanted):
        if theirs != wanted[0]:
            raise ValueError(
                f"rank {rank} wants tensors of shape {theirs[0]} and {theirs[1]}, but "
                f"rank 0 of {wanted[0][0]} and {wanted[0][1]}: all ranks share one "
                "shape and dtype."
            )


def reserve(num_bytes: int) -> IO[bytes] | None:
    """Return a new file of zeros in the first of `FOLDERS` that has the room, or
    None."""
    for folder in filter(os.path.isdir, FOLDERS):
        try:
            file = NamedTemporaryFile(prefix="d2l_mgpu-", dir=folder)  # noqa: SIM115 (caller closes)
        except OSError:  # a folder that this user may not write to
            continue
        try:
            # else a full disk shows later, as a SIGBUS
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, num_bytes)
            file.truncate(num_bytes)
            return file
        except (OSError, OverflowError):  # full, or more than a file can be
            file.close()
    return None


def all_reduce_shared(
    tensors: Sequence[Tensor], barrier: Callable[[], object] = dist.barrier
) -> None:
    """Overwrite each of the tensors from `shared_tensors` with the sum of all of them.

    A collective. On all ranks the sum has the same bits: every number is summed on one
    of them. Raises ValueError unless there is one tensor per rank.
    """
    rank, k = dist.get_rank(), dist.get_world_size()
    if len(tensors) != k:
        raise ValueError(
            "all_reduce_shared takes the list that shared_tensors returned, "
            f"{k} tensors for {k} ranks, but there are {len(tensors)}."
        )
    parts = [tensor.view(-1).tensor_split(k)[rank].split(CHUNK) for tensor in tensors]
    barrier()  # all ranks have written their terms
    for total, *others in zip(*parts, strict=True):
        for other in others:
            total += other
        for other in others:
            other.copy_(total)
    barrier()  # all ranks have summed their part
