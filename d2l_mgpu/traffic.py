"""What is sent between devices, counted where it is sent.

A *transfer* takes one tensor from one device to another. It is a real copy even when
both names stand for the same device: replicas on one device do what separate devices
would do. A *synchronization* is a point at which devices wait for each other; a
collective counts as one, however many transfers it is made of.

Not counted: the minibatch on its way from the host to the devices, and a loss that is
only read.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class Traffic:
    """Counts the transfers, their bytes and the synchronizations of each phase of a
    step ("forward", "backward", "update"), and the bytes that each device keeps for
    backward."""

    def __init__(self) -> None:
        self.synchronizations: Counter[str] = Counter()
        self.transfers: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.kept: Counter[int] = Counter()  # per rank

    def __str__(self) -> str:
        def number(n: int, noun: str) -> str:
            return f"{n:,} {noun}{'s' * (n != 1)}"

        lines = [
            f"{phase:8} {number(waits, 'synchronization')}, "
            f"{number(self.transfers[phase], 'transfer')}, "
            f"{number(self.bytes[phase], 'byte')}"
            for phase, waits in self.synchronizations.items()
        ]
        return "\n".join(lines) or "nothing crosses"

    def synchronize(self, phase: str) -> None:
        """Count one point at which devices wait for each other."""
        self.synchronizations[phase] += 1

    def send(
        self, tensors: Sequence[Tensor], devices: Sequence[torch.device], phase: str
    ) -> list[Tensor]:
        """Copy `tensors[i]` to `devices[i]`, for every i, and count the bytes."""
        self.transfers[phase] += len(tensors)
        self.bytes[phase] += sum(x.nbytes for x in tensors)
        return [
            x.to(device, copy=True) for x, device in zip(tensors, devices, strict=True)
        ]

    @contextmanager
    def on(self, rank: int) -> Iterator[None]:
        """Inside, device `rank` computes: count the activations that it keeps for
        backward."""
        seen = set()

        def keep(x: Tensor) -> Tensor:
            is_parameter = x.is_leaf and x.requires_grad
            # two operations may keep the same tensor
            storage = x.untyped_storage().data_ptr()
            if not is_parameter and storage not in seen:
                seen.add(storage)
                self.kept[rank] += x.nbytes
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            yield


class Exchange(torch.autograd.Function):
    """Send tensors to other devices in one synchronization; backward, in another one,
    sends the gradient of every copy back to the tensor it was made from."""

    @staticmethod
    def forward(
        ctx: Any, traffic: Traffic, devices: Sequence[torch.device], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.traffic, ctx.homes = traffic, [x.device for x in tensors]
        traffic.synchronize("forward")
        return tuple(traffic.send(tensors, devices, "forward"))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ctx.traffic.synchronize("backward")
        return None, None, *ctx.traffic.send(gradients, ctx.homes, "backward")


def all_gather(
    shards: Sequence[Tensor], devices: Sequence[torch.device], traffic: Traffic
) -> list[Tensor]:
    """Join `shards`, of which device i holds the i-th, along axis 1 on every one of
    `devices`.

    Each device gets the shards of the others and keeps its own. In the backward pass,
    autograd adds up the gradients of a shard from all devices that used it: a
    reduce-scatter.
    """
    ranks = range(len(shards))
    routes = [(i, to) for to in range(len(devices)) for i in ranks if i != to]
    arrived = {}
    if routes:
        targets = [devices[to] for _, to in routes]
        copies = Exchange.apply(traffic, targets, *(shards[i] for i, _ in routes))
        arrived = dict(zip(routes, copies, strict=True))
    return [
        torch.cat([shards[i] if i == to else arrived[i, to] for i in ranks], dim=1)
        for to in range(len(devices))
    ]


def sum_gradients(device_params: Sequence[Sequence[Tensor]], traffic: Traffic) -> None:
    """All-reduce: overwrite the gradients of every replica with their sum over all
    replicas, which the first one collects and sends back."""
    if len(device_params) == 1:
        return
    traffic.synchronize("update")
    for replicas in zip(*device_params, strict=True):
        first, *others = [p.grad for p in replicas]
        for gradient in traffic.send(others, [first.device] * len(others), "update"):
            first += gradient
        sums = traffic.send([first] * len(others), [g.device for g in others], "update")
        for gradient, total in zip(others, sums, strict=True):
            gradient.copy_(total)
