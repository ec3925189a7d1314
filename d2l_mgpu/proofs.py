"""Proofs that a parallel strategy computes what one device computes.

A proof takes the reader's own functions, runs real steps, and raises AssertionError
with the figures when something differs. Between replicas it compares bits: they did the
same arithmetic on the same numbers. Against one device it allows for rounding, because
sums in another order round differently: 1e-12 in float64, 1e-5 in float32, relative to
the largest value of each tensor. NaN equals nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations

import torch
from torch import Tensor

from d2l_mgpu.arguments import integer
from d2l_mgpu.exactness import without_tf32
from d2l_mgpu.models import lenet, lenet_params, loss

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def exact_dtype(devices: Sequence[torch.device]) -> torch.dtype:
    """float64, which rounds least; float32 where a device (Apple's GPU) has nothing
    wider."""
    return torch.float32 if any(d.type == "mps" for d in devices) else torch.float64


def largest_difference(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> float:
    """Return the largest absolute difference between two lists of tensors, as float64
    sees it.

    NaN where a tensor holds NaN, or where both hold infinity. Devices may differ, and
    how wide numbers are; raises AssertionError where shapes do, since broadcasting
    would compare a number with many others, and where whole numbers meet others;
    ValueError for tensors without numbers side by side in memory (sparse, quantized,
    meta).
    """
    largest = torch.zeros((), dtype=torch.float64)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.shape != b.shape:
            raise AssertionError(
                f"tensor {i} has shape {tuple(a.shape)}, not {tuple(b.shape)}"
            )
        if _is_whole(a) != _is_whole(b):
            raise AssertionError(
                f"tensor {i} is {a.dtype}, but the other one is {b.dtype}"
            )
        if a.numel():
            # keeps NaN; max() may drop it
            largest = torch.maximum(largest, _distances(a, b).max())
    return largest.item()


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """Absolute differences of two tensors of one shape, float64 on the CPU: Apple's GPU
    has none.

    At least 1 between whole numbers that differ: float64 holds them exactly up to 2^53
    only.
    """
    a, b = _on_cpu(a), _on_cpu(b)
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    distances = (a.to(wide) - b.to(wide)).abs()
    if _is_whole(a):
        distances = distances.maximum((a != b).to(distances))
    return distances


def _is_whole(x: Tensor) -> bool:
    return not (x.is_floating_point() or x.is_complex())


def _on_cpu(x: Tensor) -> Tensor:
    """The numbers of `x` on the CPU, as they would be printed."""
    if x.layout != torch.strided or x.is_quantized or x.is_meta:
        raise ValueError(
            f"Only plain tensors can be compared, but this one is {x.dtype} on "
            f"{x.device} in the layout {x.layout}."
        )
    return x.detach().cpu().resolve_conj().resolve_neg()


def assert_replicas_identical(device_params: Sequence[Sequence[Tensor]]) -> None:
    """Insist that all replicas hold the same bits, each in memory of its own.

    The same bits in the same dtype and shape: 0.0 is not -0.0. And they are numbers:
    replicas full of NaN have nothing left to compare.
    """
    for rank, params in enumerate(device_params):
        if len(params) != len(device_params[0]):
            raise AssertionError(
                f"replica {rank} has {len(params)} parameters, replica 0 has "
                f"{len(device_params[0])}"
            )
        for i, (copy, first) in enumerate(zip(params, device_params[0], strict=True)):
            if _on_cpu(copy).isnan().any():
                raise AssertionError(f"replica {rank} holds NaN in parameter {i}")
            if (copy.dtype, copy.shape) != (first.dtype, first.shape):
                raise AssertionError(
                    f"replicas 0 and {rank} differ in parameter {i}: {first.dtype} of "
                    f"shape {tuple(first.shape)}, {copy.dtype} of shape "
                    f"{tuple(copy.shape)}"
                )
            if not torch.equal(_bytes(copy), _bytes(first)):
                difference = largest_difference([copy], [first])
                raise AssertionError(
                    f"replicas 0 and {rank} differ by {difference:.1e} in parameter {i}"
                )
    _assert_memory_apart(device_params)


def _bytes(x: Tensor) -> Tensor:
    return _on_cpu(x).contiguous().flatten().view(torch.uint8)


def _assert_memory_apart(device_params: Sequence[Sequence[Tensor]]) -> None:
    """Insist that no byte of one replica lies between the first and the last of
    another's tensor; within a replica, two parameters may well be one."""
    memory = [
        (i, rank, p.device, p.data_ptr(), p.data_ptr() + _extent(p))
        for i, replicas in enumerate(zip(*device_params, strict=True))
        for rank, p in enumerate(replicas)
        if p.numel()
    ]
    for one, other in combinations(memory, 2):
        (i, rank, device, start, end), (j, rank_2, device_2, start_2, end_2) = (
            one,
            other,
        )
        if rank != rank_2 and device == device_2 and start < end_2 and start_2 < end:
            raise AssertionError(
                f"replicas share the storage of parameter {i}: one is an alias"
                + (f" of parameter {j}" if i != j else "")
            )


def _extent(x: Tensor) -> int:
    """Bytes from the first element of `x` in memory to its last, strides included."""
    steps = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    return (steps + 1) * x.element_size()


def assert_equals_one_device(
    ours: Sequence[Tensor], one_device: Sequence[Tensor]
) -> float:
    """Insist that `ours` equals what one device computed, up to rounding; return the
    difference.

    Each tensor is measured by its own scale, the largest number in it, at least 1.
    Raises AssertionError also for other shapes and dtypes, and where one device
    computed NaN or infinity, of which nothing can be equal; ValueError for dtypes
    without a tolerance.
    """
    largest = 0.0
    for i, (our, their) in enumerate(zip(ours, one_device, strict=True)):
        if our.dtype != their.dtype:
            raise AssertionError(
                f"tensor {i} is {our.dtype}, but one device has {their.dtype}"
            )
        if their.dtype not in TOLERANCE:
            raise ValueError(
                f"proofs know how float32 and float64 round, not {their.dtype}."
            )
        if not their.isfinite().all():
            raise AssertionError(
                f"one device itself computes NaN or infinity in tensor {i}"
            )
        difference = largest_difference([our], [their])
        scale = max(1.0, their.abs().max().item()) if their.numel() else 1.0
        if not difference <= TOLERANCE[their.dtype] * scale:  # NaN is not, either
            raise AssertionError(
                f"tensor {i} is {difference:.1e} away from what one device computes"
            )
        largest = max(largest, difference)
    return largest


def random_batches(
    num_batches: int, batch_size: int, dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield random images (n, 1, 28, 28) with labels (n,); they are the same in every
    proof.

    The first batch has `batch_size` examples, each one after it one less: batches of an
    epoch differ in size, too. Raises ValueError without a step or an example: where
    nothing is computed, all are equal.
    """
    num_batches = integer("num_steps", num_batches)
    batch_size = integer("batch_size", batch_size)
    generator = torch.Generator().manual_seed(1)
    for number in range(num_batches):
        n = max(1, batch_size - number)
        X = torch.randn((n, 1, 28, 28), dtype=dtype, generator=generator)
        yield X, torch.randint(10, (n,), generator=generator)


def one_device_step(
    X: Tensor, y: Tensor, params: Sequence[Tensor], lr: float
) -> list[Tensor]:
    """Take one step with nothing but autograd on the mean loss; return it and its
    gradients."""
    mean_loss = loss(lenet(X, params), y).mean()
    gradients = torch.autograd.grad(mean_loss, params)
    with torch.no_grad():
        for p, g in zip(params, gradients, strict=True):
            p -= lr * g
    return [mean_loss, *gradients]


@without_tf32()
def prove_equals_one_device(
    train_batch: Callable,
    get_params: Callable,
    devices: Sequence[torch.device],
    *,
    batch_size: int = 7,
    num_steps: int = 3,
    dtype: torch.dtype | None = None,
) -> float:
    """Train LeNet on `devices` and on one device, on the same batches, and compare
    every step.

    The one device uses nothing but autograd on the mean loss of the whole batch.
    Returns the largest difference over all steps; raises AssertionError where the
    replicas come apart, share storage, or leave the path of the one device.
    """
    dtype = dtype or exact_dtype(devices)
    if not devices or dtype not in TOLERANCE:
        raise ValueError(
            f"A proof needs a device and float32 or float64, not {devices}, {dtype}."
        )
    start = [p.to(dtype) for p in lenet_params()]
    one_device = [p.clone().requires_grad_() for p in start]
    device_params = [get_params(start, device) for device in devices]
    difference = 0.0
    assert_replicas_identical(device_params)
    for number, (X, y) in enumerate(
        random_batches(num_steps, batch_size, dtype), start=1
    ):
        lr = 0.1 / number
        one_device_step(X, y, one_device, lr)  # before anything can happen to the batch
        train_batch(X, y, device_params, devices, lr)
        assert_replicas_identical(device_params)
        difference = max(
            difference, assert_equals_one_device(device_params[0], one_device)
        )
    return difference
