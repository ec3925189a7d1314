"""Whether processes on GPUs compute what one device does, by NCCL and by gloo.

As many ranks as there are GPUs have one each, and talk by NCCL. One rank more, and all of them
share the first GPU, by gloo, since NCCL refuses that. With one GPU, that is 1 rank and 2.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from benchmarks.on_gpu.setting import Findings, Setting
from d2l_mgpu import LeNet, largest_difference, launch, rank_device
from d2l_mgpu.accumulation import backward_in_parts
from d2l_mgpu.all_reduces import ALL_REDUCES, Sent
from d2l_mgpu.buckets import Bucketed
from d2l_mgpu.fast import FastNet

TOLERANCE = 1e-5  # gradients of about 0.1, in float32, and sums of whole numbers


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


def largest_differences(num_devices: int) -> dict[str, float]:
    """What `differences` finds, the largest of all ranks."""
    on_ranks = launch(differences, num_devices=num_devices, timeout=120)
    return {name: np.max([found[name] for found in on_ranks]).item() for name in on_ranks[0]}


def find(s: Setting) -> Findings:
    gpus = torch.cuda.device_count() if s.gpu else 0
    facts: dict[str, Any] = {}
    wrong = []
    for num_devices in (max(gpus, 1), max(gpus, 1) + 1):
        try:
            found = largest_differences(num_devices)
        except Exception as error:  # must not cost what the other number of ranks finds
            wrong.append(f"world size {num_devices}: {error}")
            continue
        facts[str(num_devices)] = {name: float(f"{x:.3g}") for name, x in found.items()}
        print(f"world size {num_devices}, away from one device:", json.dumps(found, indent=1))
        wrong += [
            f"world size {num_devices}, {name}: {x} away from one device"
            for name, x in found.items()
            if not x <= TOLERANCE
        ]
    return Findings(facts, wrong=wrong)
