"""Four ways to all-reduce give the naive sum, in the same bits everywhere, with known messages."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from d2l_mgpu import launch
from d2l_mgpu.all_reduces import ALL_REDUCES, Sent, all_reduce_ring
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
    S, depth = 1680, math.ceil(math.log2(k))
    segments = math.ceil(S // k / 40)
    busiest = {
        "at root": (k - 1, (k - 1) * S),
        "tree": (depth, depth * S),
        "sharded": (2 * (k - 1), 2 * (k - 1) * S // k),
        "ring": (2 * (k - 1), 2 * (k - 1) * S // k),
        "ring in segments": (2 * (k - 1) * segments, 2 * (k - 1) * S // k),
    }
    total = {"at root": 2 * (k - 1) * S, "tree": 2 * (k - 1) * S}
    for name in WAYS:
        assert [results[name][0] for results in on_ranks] == [[]] * k
        sent = [results[name][1] for results in on_ranks]
        assert max(sent) == busiest[name]
        assert sum(num_bytes for _, num_bytes in sent) == total.get(name, 2 * (k - 1) * S)


# Faults: a line of the package's function replaced by another.
FAULTS = {
    "the root forgets itself": ("at root", "travelling += term", "travelling = term"),
    "the root sends one term": ("at root", "[sent.isend(travelling, o", "[sent.isend(term, o"),
    "a shard is not summed": ("sharded", "total += term", "pass"),
    "shards are not handed out": ("sharded", "shards[rank] = total", "return"),
    "the ring forgets itself": ("ring", "segment += places[i]", "segment.copy_(places[i])"),
    "the ring is one step short": ("ring", "2 * world_size - 1)", "2 * world_size - 2)"),
    "a term is summed twice": ("ring", "if i < num_sums", "if i <= num_sums"),
    "a copy that nobody reads": ("ring", "tensor.copy_(travelling)", "pass"),
}


def faulty(fault: str) -> AllReduce:
    name, *texts = FAULTS[fault]
    all_reduce = ALL_REDUCES[name]
    return planted(all_reduce, *texts)[all_reduce.__name__]


def unnoticed_faults() -> list[str]:
    """On this rank: the faults that lead to the right sums, and to the same bits as on rank 0."""
    return [fault for fault in FAULTS if not wrong_sums(faulty(fault))]


def test_planted_faults_are_noticed() -> None:
    on_ranks = launch(unnoticed_faults, num_devices=3, timeout=200)
    assert not set.intersection(*map(set, on_ranks))
