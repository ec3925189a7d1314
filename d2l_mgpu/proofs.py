"""Proofs that a parallel strategy computes what one device computes.

A proof takes the reader's own functions, runs real steps, and raises AssertionError with the
figures when something differs. Between replicas it compares bits: they did the same arithmetic
on the same numbers. Against one device it allows for rounding, because sums in another order
round differently: 1e-12 in float64, 1e-5 in float32, relative to the largest value.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from d2l_mgpu.models import lenet, lenet_params, loss
from d2l_mgpu.scratch import sgd
from d2l_mgpu.traffic import Traffic

if TYPE_CHECKING:
    from d2l_mgpu.splitting import Split

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def exact_dtype(devices: Sequence[torch.device]) -> torch.dtype:
    """float64, which rounds least; float32 where a device (Apple's GPU) has nothing wider."""
    return torch.float32 if any(d.type == "mps" for d in devices) else torch.float64


def largest_difference(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> float:
    """Return the largest absolute difference between two lists of tensors of equal shapes."""
    pairs = zip(ours, theirs, strict=True)
    # First to the CPU: Apple's GPUs know no float64
    return max((a.cpu().double() - b.cpu().double()).abs().max().item() for a, b in pairs)


def assert_replicas_identical(device_params: Sequence[Sequence[Tensor]]) -> None:
    """Insist that all replicas hold the same bits, each in storage of its own."""
    for i, copies in enumerate(zip(*device_params, strict=True)):
        for rank, copy in enumerate(copies[1:], start=1):
            if not torch.equal(copy.cpu(), copies[0].cpu()):
                difference = largest_difference([copy], [copies[0]])
                raise AssertionError(
                    f"replicas 0 and {rank} differ by {difference:.1e} in parameter {i}"
                )
        if len({(copy.device, copy.data_ptr()) for copy in copies}) < len(copies):
            raise AssertionError(f"replicas share the storage of parameter {i}: one is an alias")


def assert_equals_one_device(ours: Sequence[Tensor], one_device: Sequence[Tensor]) -> float:
    """Insist that `ours` equals what one device computed, up to rounding; return the difference."""
    difference = largest_difference(ours, one_device)
    scale = max(1.0, *(p.abs().max().item() for p in one_device))
    if not difference <= TOLERANCE[one_device[0].dtype] * scale:  # written so that NaN fails
        raise AssertionError(f"{difference:.1e} away from what one device computes")
    return difference


def prove_equals_one_device(
    train_batch: Callable,
    get_params: Callable,
    devices: Sequence[torch.device],
    *,
    batch_size: int = 7,
    num_steps: int = 3,
    dtype: torch.dtype | None = None,
) -> float:
    """Train LeNet on `devices` and on one device, on the same batches, and compare every step.

    The one device uses nothing but autograd on the mean loss of the whole batch. Returns the
    largest difference over all steps; raises AssertionError where the replicas come apart, share
    storage, or leave the path of the one device.
    """
    dtype = dtype or exact_dtype(devices)
    generator = torch.Generator().manual_seed(1)
    start = [p.to(dtype) for p in lenet_params()]
    device_params = [get_params(start, device) for device in devices]
    one_device = [p.clone().requires_grad_() for p in start]
    lr, difference = 0.1, 0.0
    assert_replicas_identical(device_params)
    for _ in range(num_steps):
        X = torch.randn((batch_size, 1, 28, 28), dtype=dtype, generator=generator)
        y = torch.randint(10, (batch_size,), generator=generator)
        train_batch(X, y, device_params, devices, lr)
        gradients = torch.autograd.grad(loss(lenet(X, one_device), y).mean(), one_device)
        with torch.no_grad():
            for p, g in zip(one_device, gradients, strict=True):
                p -= lr * g
        assert_replicas_identical(device_params)
        difference = max(difference, assert_equals_one_device(device_params[0], one_device))
    return difference


def prove_split_equals_one_device(
    split: "Split",
    devices: Sequence[torch.device],
    *,
    batch_size: int = 7,
    num_steps: int = 3,
    dtype: torch.dtype | None = None,
) -> float:
    """Train LeNet split over `devices` and on one device, on the same batches; compare the
    loss, all gradients and all updated parameters of every step.

    Returns the largest difference; raises AssertionError where the two come apart.
    """
    dtype = dtype or exact_dtype(devices)
    generator = torch.Generator().manual_seed(1)
    one_device = [p.to(dtype).requires_grad_() for p in lenet_params()]
    device_params = split.place(one_device, devices)
    lr, difference = 0.1, 0.0
    for _ in range(num_steps):
        X = torch.randn((batch_size, 1, 28, 28), dtype=dtype, generator=generator)
        y = torch.randint(10, (batch_size,), generator=generator)
        mean_loss = loss(lenet(X, one_device), y).mean()
        gradients = torch.autograd.grad(mean_loss, one_device)
        total = split.gradients(X, y, device_params, devices, Traffic())
        if any(p.grad is None for params in device_params for p in params):
            raise AssertionError("no gradient arrived at some of the parameters")
        held = [[p.grad for p in params if p.grad is not None] for params in device_params]
        ours = [total / batch_size, *(g / batch_size for g in split.join(held))]
        difference = max(difference, assert_equals_one_device(ours, [mean_loss, *gradients]))
        for params in device_params:
            sgd(params, lr, batch_size)
        with torch.no_grad():
            for p, g in zip(one_device, gradients, strict=True):
                p -= lr * g
        updated = split.join(device_params)
        difference = max(difference, assert_equals_one_device(updated, one_device))
    return difference
