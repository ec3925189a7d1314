"""A batch in micro-batches leaves the gradients of the whole batch, after one exchange."""

from collections import Counter
from contextlib import nullcontext
from functools import cache
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from d2l_mgpu import assert_equals_one_device, assert_replicas_identical, launch
from d2l_mgpu.accumulation import backward_in_parts

SHARDS = [[4, 4], [4, 3], [4, 1], [1, 1], [3, 0], [0, 0]]  # rows of each rank
FOUR = 4  # micro-batches


def net(batchnorm: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    middle = nn.BatchNorm2d(3) if batchnorm else nn.Tanh()
    layers = [nn.Conv2d(1, 3, 3), middle, nn.Flatten(), nn.Linear(108, 10)]
    return nn.Sequential(*layers).double()


def batch(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n)
    X = torch.randn(n, 1, 8, 8, dtype=torch.float64, generator=generator)
    return X, torch.randint(10, (n,), generator=generator)


def gradients(module: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


# Faults of published programs (the chapter links to two); each has the function's signature.


def always_exchanging(replica, X, y, num_parts, weight):
    """No `no_sync` at all."""
    for X_part, y_part in zip(X.tensor_split(num_parts), y.tensor_split(num_parts), strict=True):
        (weight * cross_entropy(replica(X_part), y_part, reduction="sum")).backward()


def around_backward_only(replica, X, y, num_parts, weight):
    """Pitfall 4: DDP has made up its mind by then."""
    for part in range(num_parts):
        X_part, y_part = X.tensor_split(num_parts)[part], y.tensor_split(num_parts)[part]
        loss = weight * cross_entropy(replica(X_part), y_part, reduction="sum")
        with replica.no_sync() if part < num_parts - 1 else nullcontext():
            loss.backward()


def flag_before_backward_only(replica, X, y, num_parts, weight):
    """Pitfall 4: the flag is late by one forward pass, so the first part is exchanged."""
    for part in range(num_parts):
        X_part, y_part = X.tensor_split(num_parts)[part], y.tensor_split(num_parts)[part]
        loss = weight * cross_entropy(replica(X_part), y_part, reduction="sum")
        replica.require_backward_grad_sync = part == num_parts - 1
        loss.backward()


def never_exchanging(replica, X, y, num_parts, weight):
    """The last part is left inside as well."""
    with replica.no_sync():
        always_exchanging(replica, X, y, num_parts, weight)


def mean_of_each_part(replica, X, y, num_parts, weight):
    """Every part weighs the same, however many rows it has."""
    for part in range(num_parts):
        X_part, y_part = X.tensor_split(num_parts)[part], y.tensor_split(num_parts)[part]
        with replica.no_sync() if part < num_parts - 1 else nullcontext():
            loss = cross_entropy(replica(X_part), y_part) * len(y) / num_parts
            (weight * loss).backward()


FAULTS = [
    (always_exchanging, [4, 4], "exchanged 4 times"),
    (around_backward_only, [4, 4], "exchanged 4 times"),
    (flag_before_backward_only, [4, 4], "replicas 0 and 1 differ"),
    (never_exchanging, [4, 4], "replicas 0 and 1 differ"),
    (mean_of_each_part, [6, 5], "away from what one device computes"),
]


def with_ddp(backward, sizes: list[int]) -> dict[str, Any]:
    """Run by each rank: its rows of the batch, from gradients that are there already."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    replica = DistributedDataParallel(net())
    counts: Counter[str] = Counter()

    def counted(state, bucket):
        counts["exchanges"] += 1
        return allreduce_hook(dist.group.WORLD, bucket)

    replica.register_comm_hook(None, counted)
    for p in replica.parameters():
        p.grad = torch.ones_like(p)
    X, y = (part.split(sizes)[rank] for part in batch(sum(sizes)))
    loss = backward(replica, X, y, FOUR, world_size / max(1, sum(sizes)))
    return {"gradients": gradients(replica), "exchanges": counts["exchanges"], "loss": loss}


def everything() -> dict[Any, dict[str, Any]]:
    """Run by each rank: all shards and all faults, in one launch."""
    cases = [(backward_in_parts, sizes) for sizes in SHARDS]
    cases += [(backward_in_parts, sizes) for _, sizes, _ in FAULTS]
    cases += [(fault, sizes) for fault, sizes, _ in FAULTS]
    return {(fn.__name__, str(sizes)): with_ddp(fn, sizes) for fn, sizes in cases}


@cache
def ranks() -> list[dict[Any, dict[str, Any]]]:
    return launch(everything, num_devices=2)


def prove(name: str, sizes: list[int]) -> None:
    """The proof: replicas agree, the result is one device's, and there is one exchange."""
    found = [rank[name, str(sizes)] for rank in ranks()]
    assert_replicas_identical([rank["gradients"] for rank in found])
    X, y = batch(sum(sizes))
    one_device = net()
    for p in one_device.parameters():
        p.grad = torch.ones_like(p)
    if len(y):
        cross_entropy(one_device(X), y).backward()
    assert_equals_one_device(found[0]["gradients"], gradients(one_device))
    for rank in found:
        assert rank["exchanges"] == 1, f"exchanged {rank['exchanges']} times"


@pytest.mark.parametrize("sizes", SHARDS, ids=str)
def test_micro_batches_leave_the_gradients_of_the_batch_after_one_exchange(sizes):
    prove("backward_in_parts", sizes)


@pytest.mark.parametrize(("fault", "sizes", "says"), FAULTS, ids=[f[0].__name__ for f in FAULTS])
def test_the_proof_catches(fault, sizes, says):
    prove("backward_in_parts", sizes)  # sound as it is
    with pytest.raises(AssertionError, match=says):
        prove(fault.__name__, sizes)


@pytest.mark.parametrize("sizes", [[4, 4], [4, 3], [4, 1], [3, 0]], ids=str)
def test_the_loss_is_that_of_this_rank_s_rows(sizes):
    X, y = batch(sum(sizes))
    for rank, (X_, y_) in enumerate(zip(X.split(sizes), y.split(sizes), strict=True)):
        loss = ranks()[rank]["backward_in_parts", str(sizes)]["loss"]
        whole = cross_entropy(net()(X_), y_, reduction="sum") * 2 / sum(sizes)
        assert torch.allclose(loss, whole.detach(), rtol=1e-12)
        assert not loss.requires_grad


@pytest.mark.parametrize("num_parts", [1, 2, 5, 7, 100])
def test_a_plain_module_needs_no_process_group(num_parts):
    X, y = batch(7)
    ours, whole = net(), net()
    loss = backward_in_parts(ours, X, y, num_parts, weight=0.5)
    expected = 0.5 * cross_entropy(whole(X), y, reduction="sum")
    expected.backward()
    assert_equals_one_device([loss, *gradients(ours)], [expected.detach(), *gradients(whole)])


def buffers_after_steps(sizes: list[int]) -> list[torch.Tensor]:
    """Run by each rank: DDP broadcasts BatchNorm's buffers, once a step on every rank."""
    replica = DistributedDataParallel(net(batchnorm=True))
    X, y = (part.split(sizes)[dist.get_rank()] for part in batch(sum(sizes)))
    for _ in range(3):
        backward_in_parts(replica, X, y, FOUR, weight=1.0)
    with torch.no_grad():
        replica(X)  # takes over the buffers of rank 0
    return gradients(replica)


def test_ranks_with_different_numbers_of_parts_agree_also_with_batchnorm():
    shards = launch(buffers_after_steps, [5, 1], num_devices=2, timeout=120)
    assert_replicas_identical(shards)


def test_no_parts_are_refused():
    with pytest.raises(ValueError, match=r"num_parts must be an integer .* but it is 0\."):
        backward_in_parts(net(), *batch(2), num_parts=0, weight=1.0)
