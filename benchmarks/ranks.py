"""Whether processes on a GPU compute what one device does: part of what `benchmarks.gpu` asks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from d2l_mgpu import LeNet, largest_difference, launch, rank_device
from d2l_mgpu.accumulation import backward_in_parts
from d2l_mgpu.all_reduces import ALL_REDUCES, Sent
from d2l_mgpu.buckets import Bucketed
from d2l_mgpu.fast import FastNet


def differences() -> dict[str, float]:
    """On each rank: how far gradients and sums are from what one device computes, at most."""
    torch.backends.cudnn.allow_tf32 = False  # which would round more than our mistakes
    device, rank, world_size = rank_device(), dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(9, 1, 28, 28, generator=generator).to(device)
    y = torch.randint(10, (9,), generator=generator).to(device)
    net = LeNet().to(device)
    whole = torch.autograd.grad(F.cross_entropy(net(X), y), list(net.parameters()))
    found = {}
    wrappers: dict[str, Callable[[nn.Module], Any]] = {
        "DDP": DistributedDataParallel,
        "DDP, channels last": lambda n: DistributedDataParallel(FastNet(n, device, bf16=False)),
        "Bucketed": Bucketed,
    }
    for name, wrap in wrappers.items():
        replica = wrap(LeNet().to(device))
        shard = slice(rank, None, world_size)
        backward_in_parts(replica, X[shard], y[shard], 1, world_size / len(y))
        if isinstance(replica, Bucketed):
            replica.finish()
        found[name] = largest_difference([_grad(p) for p in replica.parameters()], whole)
    for name, all_reduce in ALL_REDUCES.items():
        tensor = torch.arange(1001.0, device=device) * (rank + 1)
        all_reduce(tensor, Sent())
        total = torch.arange(1001.0, device=device) * sum(range(1, world_size + 1))
        found[f"all-reduce {name}"] = largest_difference([tensor], [total])
    tensor = torch.full((1001,), float(rank + 1), device=device)
    dist.all_reduce(tensor)
    total = torch.full((1001,), float(sum(range(1, world_size + 1))))
    found[f"all-reduce of {dist.get_backend()}"] = largest_difference([tensor], [total])
    return found


def _grad(p: nn.Parameter) -> Tensor:
    assert p.grad is not None
    return p.grad


def largest_differences(num_devices: int) -> dict[str, Any]:
    """What `differences` finds; what goes wrong in it must not cost the rows."""
    try:
        on_ranks = launch(differences, num_devices=num_devices, timeout=120)
    except Exception as error:
        return {"failed": str(error)}
    return {name: np.max([found[name] for found in on_ranks]).item() for name in on_ranks[0]}
