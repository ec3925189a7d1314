"""Rows 4 and 5: our ring and our all-reduce in shared memory beside gloo's all-reduce."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.pairs import Arms, compare
from d2l_mgpu.all_reduces import Sent, all_reduce_ring
from d2l_mgpu.proofs import assert_equals_one_device
from d2l_mgpu.shared_memory import all_reduce_shared, shared_tensors

PROCESSES = 2
# Numbers of float32, and all-reduces a run. 44.7 MB are the gradients of ResNet-18.
SIZES = {"4 MB": (2**20, 40), "44.7 MB": (11_175_818, 10)}


def check(ours: Callable[[], object], ours_in: Tensor, gloos_in: Tensor) -> None:
    """Insist that ours leaves the same sum as gloo; then put zeros, which stay zeros, into both."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    start = torch.randn(ours_in.shape, generator=generator)
    ours_in.copy_(start)
    gloos_in.copy_(start)
    dist.barrier()  # in shared memory, a peer must not add before this rank has written
    ours()
    dist.all_reduce(gloos_in)
    assert_equals_one_device([ours_in], [gloos_in])
    dist.barrier()  # nor clear what a peer still compares
    ours_in.zero_()
    gloos_in.zero_()


def repeated(all_reduce: Callable[[], object], times: int) -> Callable[[], None]:
    """One run: shorter ones would measure the clock."""

    def run() -> None:
        for _ in range(times):
            all_reduce()

    return run


def facts(numel: int, times: int) -> dict[str, int]:
    return {"bytes": 4 * numel, "all-reduces a run": times, "threads a process": 1}


def ring_arms(numel: int, times: int) -> Arms:
    """Our ring from messages, and gloo."""
    mine, gloos = torch.empty(numel), torch.empty(numel)

    def ring() -> None:
        all_reduce_ring(mine, Sent())

    check(ring, mine, gloos)
    gloo = repeated(lambda: dist.all_reduce(gloos), times)
    return Arms(repeated(ring, times), gloo, facts(numel, times))


def shared_arms(numel: int, times: int) -> Arms:
    """Gloo, and ours in memory that both ranks see."""
    shared, gloos = shared_tensors((numel,)), torch.empty(numel)

    def in_place() -> None:
        all_reduce_shared(shared)

    check(in_place, shared[dist.get_rank()], gloos)
    gloo = repeated(lambda: dist.all_reduce(gloos), times)
    return Arms(gloo, repeated(in_place, times), facts(numel, times))


def ring_rows(pairs: int | None = None) -> list[dict[str, Any]]:
    """The rows of the ring."""
    return [
        compare(f"ring, {name}", ring_arms, *size, processes=PROCESSES, pairs=pairs)
        for name, size in SIZES.items()
    ]


def shared_rows(pairs: int | None = None) -> list[dict[str, Any]]:
    """The rows of shared memory."""
    return [
        compare(f"shared, {name}", shared_arms, *size, processes=PROCESSES, pairs=pairs)
        for name, size in SIZES.items()
    ]
