"""What every part is told, and what it answers."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import epoch
from d2l_mgpu import FastNet, FastStep, init_weights, resnet18
from d2l_mgpu.data import DeviceBatches, Images


@dataclass
class Setting:
    """Where, on how much and for how long; `quick` is to see that the code works."""

    device: torch.device
    quick: bool = False
    seconds: float = 60.0  # that the part should not exceed
    trace: Path | None = None  # the file for a Chrome trace

    @property
    def gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def batch_size(self) -> int:
        return 4 if self.quick else 256

    @cached_property
    def images(self) -> tuple[Images, Images]:
        """60,000 training images, repeated where there are fewer, and test images; `quick`: 8."""
        train, test = epoch.images(60_000)
        n = 8 if self.quick else 60_000
        return epoch.part(train, torch.arange(n) % len(train)), epoch.part(test, slice(n))

    @cached_property
    def batch(self) -> tuple[Tensor, Tensor]:
        """A batch on the device."""
        return next(iter(DeviceBatches(self.images[0], self.batch_size, self.device)))


@dataclass
class Findings:
    """What a part found: facts, rows of the page's table, and a sentence for all that is wrong."""

    facts: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def network() -> nn.Sequential:
    """ResNet-18 with the first weights of the published chapter."""
    net = resnet18(10)
    init_weights(net, torch.zeros(1, 1, 28, 28))
    return net


def fast_step(
    s: Setting,
    net: nn.Module,
    lr: float,
    *,
    graph: bool = False,
    compiled: bool = False,
    **options: Any,
) -> tuple[FastNet, FastStep]:
    """`net` on the device as a FastNet with these options, and a step of its training."""
    fast = FastNet(net, s.device, compiled_for=s.batch_size if compiled else None, **options)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, fused=s.gpu)
    return fast, FastStep(fast, optimizer, graph=graph and s.gpu)
