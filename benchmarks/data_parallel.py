"""Rows 2 and 3: what data parallelism costs two processes, by DDP and by our own buckets."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from benchmarks.pairs import Arms, compare
from d2l_mgpu import LeNet, all_reduce, rank_device, resnet18
from d2l_mgpu.buckets import Bucketed
from d2l_mgpu.devices import synchronize
from d2l_mgpu.proofs import assert_equals_one_device

LR = 0.01
PROCESSES = 2
# Images a process and step, and steps a run. One ResNet step of 32 takes a core about a second.
SIZES = {"LeNet": (128, 5), "ResNet-18": (32, 1)}


def new_net(name: str) -> nn.Module:
    """The same weights on all ranks, on the rank's device."""
    torch.manual_seed(0)
    return (LeNet() if name == "LeNet" else resnet18(10)).to(rank_device())


class Trainer:
    """Takes steps with `net` on the batch of this rank; `finish` is called after backward."""

    def __init__(
        self, net: nn.Module, batch_size: int, steps: int, finish: Callable[[], None] | None = None
    ) -> None:
        self.net, self.steps, self.finish = net, steps, finish
        self.optimizer = torch.optim.SGD(net.parameters(), lr=LR)
        generator = torch.Generator().manual_seed(dist.get_rank())
        X = torch.randn((batch_size, 1, 28, 28), generator=generator)
        y = torch.randint(10, (batch_size,), generator=generator)
        self.X, self.y = X.to(rank_device()), y.to(rank_device())

    def gradients(self) -> list[Tensor]:
        """Those of this rank after a backward pass."""
        self.optimizer.zero_grad()
        F.cross_entropy(self.net(self.X), self.y).backward()
        if self.finish:
            self.finish()
        return [p.grad for p in self.net.parameters() if p.grad is not None]

    def __call__(self) -> None:
        for _ in range(self.steps):
            self.gradients()
            self.optimizer.step()
        synchronize([rank_device()])


def facts(batch_size: int, steps: int) -> dict[str, int]:
    return {"images a step and process": batch_size, "steps a run": steps, "threads a process": 1}


def ddp_arms(name: str, batch_size: int, steps: int) -> Arms:
    """Steps with DDP, and the same steps by each process for itself."""
    together = Trainer(DistributedDataParallel(new_net(name)), batch_size, steps)
    alone = Trainer(new_net(name), batch_size, steps)
    averages = [g / PROCESSES for g in alone.gradients()]
    for g in averages:
        all_reduce(g)
    assert_equals_one_device(together.gradients(), averages)
    return Arms(together, alone, facts(batch_size, steps))


def bucket_arms(name: str, batch_size: int, steps: int) -> Arms:
    """Steps with our buckets, and with DDP."""
    bucketed = Bucketed(new_net(name))
    ours = Trainer(bucketed, batch_size, steps, bucketed.finish)
    ddp = Trainer(DistributedDataParallel(new_net(name)), batch_size, steps)
    assert_equals_one_device(ours.gradients(), ddp.gradients())
    return Arms(ours, ddp, facts(batch_size, steps))


def ddp_rows(pairs: int | None = None) -> list[dict[str, Any]]:
    """The rows of DDP against processes on their own."""
    return [
        compare(f"ddp, {name}", ddp_arms, name, *size, processes=PROCESSES, pairs=pairs)
        for name, size in SIZES.items()
    ]


def bucket_rows(pairs: int | None = None) -> list[dict[str, Any]]:
    """The row of our buckets against DDP."""
    size = SIZES["ResNet-18"]
    return [compare("buckets", bucket_arms, "ResNet-18", *size, processes=PROCESSES, pairs=pairs)]
