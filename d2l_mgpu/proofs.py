"""Proofs that a parallel strategy computes what one device computes.

A proof takes the reader's own functions, runs real steps, and raises AssertionError with the
figures when something differs. Between replicas it compares bits: they did the same arithmetic
on the same numbers. Against one device it allows for rounding, because sums in another order
round differently: 1e-12 in float64, 1e-5 in float32, relative to the largest value.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from d2l_mgpu.models import lenet, lenet_params, loss

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


def random_batches(
    num_batches: int, batch_size: int, dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield random images (n, 1, 28, 28) with labels (n,); they are the same in every proof."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(num_batches):
        X = torch.randn((batch_size, 1, 28, 28), dtype=dtype, generator=generator)
        yield X, torch.randint(10, (batch_size,), generator=generator)


def one_device_step(X: Tensor, y: Tensor, params: Sequence[Tensor], lr: float) -> list[Tensor]:
    """Take one step with nothing but autograd on the mean loss; return it and its gradients."""
    mean_loss = loss(lenet(X, params), y).mean()
    gradients = torch.autograd.grad(mean_loss, params)
    with torch.no_grad():
        for p, g in zip(params, gradients, strict=True):
            p -= lr * g
    return [mean_loss, *gradients]


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
    start = [p.to(dtype) for p in lenet_params()]
    device_params = [get_params(start, device) for device in devices]
    one_device = [p.clone().requires_grad_() for p in start]
    lr, difference = 0.1, 0.0
    assert_replicas_identical(device_params)
    for X, y in random_batches(num_steps, batch_size, dtype):
        train_batch(X, y, device_params, devices, lr)
        one_device_step(X, y, one_device, lr)
        assert_replicas_identical(device_params)
        difference = max(difference, assert_equals_one_device(device_params[0], one_device))
    return difference
