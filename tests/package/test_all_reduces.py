"""Four all-reduces give the naive sum, in the same bits everywhere, with known messages."""

import math
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from d2l_mgpu import all_reduces, launch
from d2l_mgpu.all_reduces import (
    ALL_REDUCES,
    Sent,
    all_reduce_at_root,
    all_reduce_ring,
    all_reduce_sharded,
    ring_rounds,
)
from tests.support.planting import planted

pytestmark = pytest.mark.timeout(300)
WORLD_SIZES = [1, 2, 3, 5]
SHAPES = [(), (1,), (3,), (4, 5), (2, 3, 7)]
AllReduce = Callable[[Tensor, Sent], None]
WAYS = {**ALL_REDUCES, "ring in segments": partial(all_reduce_ring, segment_bytes=40)}


def own(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The tensor that `rank` brings, which the others can make too."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)
    return (100 * numbers).to(dtype)


def wrong_sums(all_reduce: AllReduce) -> list[str]:
    """On this rank, the cases in which `all_reduce` does not give what summing in a loop gives,
    or not the same bits as on rank 0."""
    rank, world_size, wrong = dist.get_rank(), dist.get_world_size(), []
    for shape in SHAPES:
        for dtype in (torch.float64, torch.float32, torch.int64):
            for transposed in (False, True):
                mine = own(rank, shape, dtype)
                mine = mine.mT if transposed and len(shape) > 1 else mine
                expected = sum(own(r, shape, dtype) for r in range(world_size))
                expected = expected.mT if transposed and len(shape) > 1 else expected
                all_reduce(mine, Sent())
                rank_0 = mine.contiguous().clone()
                dist.broadcast(rank_0, src=0)
                if not torch.allclose(mine, expected, rtol=1e-5 if dtype.itemsize < 8 else 1e-12):
                    wrong.append(f"sum of {dtype} {shape}")
                if not torch.equal(mine, rank_0):
                    wrong.append(f"bits of {dtype} {shape}")
    return wrong


def messages_and_bytes(all_reduce: AllReduce) -> tuple[int, int]:
    sent = Sent()
    all_reduce(torch.ones(60 * 7, dtype=torch.float32), sent)  # 1,680 bytes; divides by 2 to 7
    return sent.messages, sent.num_bytes


def all_of_them() -> dict[str, tuple[list[str], tuple[int, int]]]:
    return {name: (wrong_sums(f), messages_and_bytes(f)) for name, f in WAYS.items()}


@pytest.mark.parametrize("k", WORLD_SIZES)
def test_every_rank_gets_the_sum_and_sends_what_the_table_says(k: int) -> None:
    on_ranks = launch(all_of_them, num_devices=k)
    N, depth = 1680, math.ceil(math.log2(k))
    segments = math.ceil(N // k / 40)
    busiest = {
        "at root": (k - 1, (k - 1) * N),
        "tree": (depth, depth * N),
        "sharded": (2 * (k - 1), 2 * (k - 1) * N // k),
        "ring": (2 * (k - 1), 2 * (k - 1) * N // k),
        "ring in segments": (2 * (k - 1) * segments, 2 * (k - 1) * N // k),
    }
    for name in WAYS:
        assert [results[name][0] for results in on_ranks] == [[]] * k
        sent = [results[name][1] for results in on_ranks]
        assert max(sent) == busiest[name]
        assert sum(num_bytes for _, num_bytes in sent) == 2 * (k - 1) * N


# Faults: a line of a function of the package replaced by another.
FAULTS = {
    "the root forgets itself": (all_reduce_at_root, "total += term", "total = term"),
    "the root sends one term": (all_reduce_at_root, "[sent.isend(total, o", "[sent.isend(term, o"),
    "a shard is not summed": (all_reduce_sharded, "total += term", "pass"),
    "shards are not handed out": (all_reduce_sharded, "shards[rank] = total", "return"),
    "the ring forgets itself": (ring_rounds, "incoming += place", "incoming.copy_(place)"),
    "the ring is one step short": (ring_rounds, "range(2 * (k - 1))", "range(2 * k - 3)"),
    "a term is summed twice": (ring_rounds, "summing = i < k - 1", "summing = i < k"),
    "only one segment": (all_reduce_ring, "zip_longest(*rings)", "rings[0]"),
    "a copy that is not written back": (all_reduce_ring, "tensor.copy_(whole)", "pass"),
}


def faulty(fault: str) -> AllReduce:
    function, *texts = FAULTS[fault]
    wrong = planted(function, *texts)[function.__name__]
    if function is all_reduce_ring:
        return partial(wrong, segment_bytes=40)
    if function is not ring_rounds:
        return wrong

    def ring(tensor: Tensor, sent: Sent) -> None:
        with patch.object(all_reduces, "ring_rounds", wrong):
            all_reduce_ring(tensor, sent)

    return ring


def unnoticed_faults() -> list[str]:
    """On this rank: the faults that lead to the right sums, and to the same bits as on rank 0."""
    return [fault for fault in FAULTS if not wrong_sums(faulty(fault))]


def test_planted_faults_are_noticed() -> None:
    on_ranks = launch(unnoticed_faults, num_devices=3, timeout=200)
    assert not set.intersection(*map(set, on_ranks))
