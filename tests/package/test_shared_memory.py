"""Ranks of one host sum in memory that they share: the naive sum, and nothing left behind."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from d2l_mgpu import RankError, launch, shared_memory
from d2l_mgpu.shared_memory import all_reduce_shared, shared_tensors
from tests.package.test_all_reduces import own
from tests.support.planting import planted

pytestmark = pytest.mark.timeout(300)
SHAPES = [(), (0,), (1,), (3,), (2, 3, 7), (3 * 2**16 + 1,)]  # the last takes several chunks
AllReduceShared = Callable[[list[Tensor], Callable[[], object]], None]


def wrong_sums(
    all_reduce: AllReduceShared, shape: tuple[int, ...], dtype: torch.dtype, late: float = 0.0
) -> list[str]:
    """What is wrong with the tensors on this rank, right after `all_reduce`. The last rank takes
    its time, `late` seconds, to bring its numbers, and after each barrier."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    late *= rank == world_size - 1
    tensors = shared_tensors(shape, dtype)
    time.sleep(late)
    tensors[rank].copy_(own(rank, shape, dtype))
    all_reduce(tensors, lambda: (dist.barrier(), time.sleep(late)))
    found = torch.stack(tensors)
    expected = sum(own(r, shape, dtype) for r in range(world_size))
    wrong = {
        "sum": torch.allclose(found[rank], expected, rtol=1e-5),
        "bits": all(torch.equal(tensor, found[0]) for tensor in found),
    }
    dist.barrier()
    return [f"{what} of {dtype} {shape}" for what, right in wrong.items() if not right]


def wrong_cases() -> list[str]:
    cases = [(s, t) for s in SHAPES for t in (torch.float64, torch.float32, torch.int64)]
    return [wrong for case in cases for wrong in wrong_sums(all_reduce_shared, *case)]


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_every_rank_finds_the_sum_in_all_tensors(k: int) -> None:
    assert launch(wrong_cases, num_devices=k) == [[]] * k


# Faults: words of all_reduce_shared replaced by others.
FAULTS = {
    "none": ("total += other", "total += other"),
    "sums before all have written": ("barrier()  # all ranks have written", "#"),
    "leaves before all have summed": ("barrier()  # all ranks have summed", "#"),
    "forgets the remainder": ("tensor_split(", "split(tensor.numel() // "),
    "forgets a term": ("total += other", "total += other if other is others[0] else 0"),
    "forgets one tensor": ("other.copy_(total)", "other is others[0] or other.copy_(total)"),
}


def faulty(fault: str) -> AllReduceShared:
    return planted(all_reduce_shared, *FAULTS[fault])["all_reduce_shared"]


def noticed_faults() -> list[str]:
    """On this rank: the faults after which something is wrong, with one rank behind the others."""
    return [fault for fault in FAULTS if wrong_sums(faulty(fault), (5, 7), torch.float32, 0.5)]


def test_planted_faults_are_noticed() -> None:
    noticed = set.union(*map(set, launch(noticed_faults, num_devices=3, timeout=200)))
    assert noticed == set(FAULTS) - {"none"}


def attempt(folders: tuple[str, str], shape: tuple[int, ...], hide: bool) -> tuple[str, list[str]]:
    """On this rank: the error of `shared_tensors`, and what it has left in the second folder.
    With `hide`, rank 1 looks for the file of rank 0 where another host would: in vain."""

    def elsewhere(names: list[str], src: int) -> None:
        broadcast(names, src=src)
        names[0] += "-of-another-host" * (hide and dist.get_rank() == 1)

    broadcast, error = dist.broadcast_object_list, ""
    with (
        patch.object(shared_memory, "FOLDERS", folders),
        patch.object(dist, "broadcast_object_list", elsewhere if hide else broadcast),
    ):
        try:
            tensors = shared_tensors(shape)  # in use when we look into the folder
            tensors[dist.get_rank()].fill_(1)
        except (RuntimeError, ValueError) as raised:
            error = str(raised)
    dist.barrier()  # rank 0 removes the name, or the file, on its way out
    left = os.listdir(folders[1])
    dist.barrier()  # before one of us makes the next file
    return error, left


def attempts(folder: str) -> list[tuple[str, list[str]]]:
    there = ("/no/such/folder", folder)
    return [
        attempt(there, (3,), False),
        attempt(there, (2**48,), False),
        attempt(there, (3,), True),
        attempt(there, (2**60, 2**60), False),
        attempt(there, (3 + dist.get_rank(),), False),
        attempt(there, (-1, 2), False),
    ]


def test_the_file_has_no_name_while_it_is_used_and_errors_come_on_all_ranks(tmp_path: Path) -> None:
    for fine, no_room, other_host, *more in launch(attempts, str(tmp_path), num_devices=2):
        assert fine == ("", [])
        assert no_room[0].startswith(f"2 tensors of {4 * 2**48:,} bytes do not fit into /no/such")
        assert other_host[0].startswith("1 of 2 ranks cannot open ")
        assert no_room[1] == other_host[1] == []
        too_large, other_shape, negative = (error for error, _ in more)
        assert "do not fit into" in too_large
        assert other_shape.startswith("rank 1 wants tensors of shape [4] and torch.float32, but")
        assert negative == "each size in shape must be an integer of at least 0, but it is -1."


def die_before_summing() -> None:
    tensors = shared_tensors((3,))
    if dist.get_rank() == 1:
        os._exit(7)
    all_reduce_shared(tensors)


def test_a_rank_that_dies_is_named() -> None:
    with pytest.raises(RankError, match="rank 1 died"):
        launch(die_before_summing, num_devices=3, timeout=100)


def one_tensor_short() -> None:
    all_reduce_shared(shared_tensors((3,))[1:])


def test_there_is_one_tensor_for_each_rank() -> None:
    with pytest.raises(RankError, match="2 tensors for 2 ranks, but there are 1"):
        launch(one_tensor_short, num_devices=2)
