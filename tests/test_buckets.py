"""Buckets that travel during backward leave the gradients that one device computes, and DDP."""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from itertools import chain
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from d2l_mgpu import (
    Bucketed,
    assert_equals_one_device,
    assert_replicas_identical,
    buckets,
    launch,
    resnet18,
)
from d2l_mgpu.accumulation import backward_in_parts
from d2l_mgpu.buckets import fill_buckets

pytestmark = pytest.mark.timeout(300)
WORLD_SIZES = [1, 2, 3]
STEPS = 3
Gradients = list[Tensor | None]


class Branches(nn.Module):
    """Dense branches that rank 1 walks through in the other order; all else that may happen to a
    parameter is in it too: tied, frozen, unused here or everywhere, of no elements, channels last.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(1, 4, 3).to(memory_format=torch.channels_last)
        self.branches = nn.ModuleList(nn.Linear(36, 36) for _ in range(4))
        self.branches[3].weight = self.branches[0].weight  # tied
        self.frozen = nn.Linear(36, 36).requires_grad_(False)
        self.on_rank_0, self.nowhere = nn.Linear(36, 36), nn.Linear(2, 2)
        self.empty = nn.Parameter(torch.empty(0))
        self.last = nn.Linear(36, 10)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, X: Tensor, rank: int) -> Tensor:
        X = self.frozen(self.first(X).flatten(1)).tanh()
        order = (0, 1, 2, 3) if rank == 0 else (2, 1, 3, 0)
        for i in order:
            X = X + self.branches[i](X).tanh()
        if rank == 0:
            X = self.on_rank_0(X)
        return self.last(X) * self.scale


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(10 * step + rank)
    X = torch.randn(4, 1, 5, 5, generator=generator, dtype=torch.float64)
    return X, torch.randint(10, (4,), generator=generator)


def gradients(net: nn.Module) -> Gradients:
    return [None if p.grad is None else p.grad.clone() for p in net.parameters()]


def on_one_device(world_size: int) -> list[Gradients]:
    """The mean over the shards, one after the other; zeros where no shard has a gradient."""
    net, found = Branches().double(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(world_size):
            X, y = batch(step, rank)
            (cross_entropy(net(X, rank), y) / world_size).backward()
        for p in net.parameters():
            if p.requires_grad and p.grad is None:
                p.grad = torch.zeros_like(p)
        found.append(gradients(net))
        optimizer.step()
    return found


def by_buckets(make: Callable = Bucketed, set_to_none: bool = True) -> dict[str, Any]:
    """Run by each rank: gradients of each step, buckets by bucket, from unequal starts."""
    rank = dist.get_rank()
    net = Branches().double()
    with torch.no_grad():
        for tensor in chain(net.parameters(), net.buffers()):
            tensor.add_(rank)  # rank 0's has to win
    replica = make(net, bucket_bytes=10_000, first_bucket_bytes=1_000)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    found, sent = [], []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=set_to_none)
        X, y = batch(step, rank)
        with patch.object(dist, "all_reduce", wraps=dist.all_reduce) as all_reduce:
            cross_entropy(replica(X, rank), y).backward()
            replica.finish()
        sent.append([call.args[0].nbytes for call in all_reduce.call_args_list])
        found.append(gradients(net))
        optimizer.step()
    return {"gradients": found, "sent": sent, "weights": [p.detach() for p in net.parameters()]}


def trained(found: Gradients) -> list[Tensor]:
    return [g for g in found if g is not None and g.numel()]


def prove(on_ranks: list[dict[str, Any]]) -> None:
    """Replicas agree to the bit, every gradient is that of one device, each bucket went once."""
    for step, one_device in enumerate(on_one_device(len(on_ranks))):
        ours = [rank["gradients"][step] for rank in on_ranks]
        for found in ours:
            assert [g is None for g in found] == [g is None for g in one_device]
        assert_replicas_identical([trained(found) for found in ours])
        assert_equals_one_device(trained(ours[0]), trained(one_device))
        for rank in on_ranks:
            assert rank["sent"][step] == on_ranks[0]["sent"][0], "buckets in another order"
    assert_replicas_identical([[w for w in rank["weights"] if w.numel()] for rank in on_ranks])
