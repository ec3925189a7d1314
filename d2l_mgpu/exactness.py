"""What a GPU does only when asked: to round as its dtype says, and to repeat every bit.

CPUs do both by themselves, on one machine with one number of threads.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def without_tf32() -> Iterator[None]:
    """Inside, float32 is float32: GPUs since NVIDIA's Ampere would round what goes into
    a convolution to TF32, which keeps 10 bits of 23."""
    with _modes_as_before():
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        yield


@contextmanager
def deterministic() -> Iterator[None]:
    """Inside, the same program on the same devices computes the same bits each time.

    Some kernels add in the order in which threads come, and libraries choose the
    quickest kernel anew in each run. Inside, such kernels are replaced by slower ones,
    or raise RuntimeError. Enter before the first operation on a CUDA device: cuBLAS
    reads CUBLAS_WORKSPACE_CONFIG only then.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with _modes_as_before():
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        yield


@contextmanager
def _modes_as_before() -> Iterator[None]:
    before = modes_of_torch()
    try:
        yield
    finally:
        set_modes(before)


def modes_of_torch() -> tuple[Any, ...]:
    """What `set_modes` takes: how this process makes tensors and computes with them."""
    return (
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        _determinism(),
        (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark),
    )


def set_modes(modes: tuple[Any, ...]) -> None:
    """Compute as the process does that these `modes_of_torch` are from."""
    dtype, precision, determinism, cudnn = modes
    torch.set_default_dtype(dtype)
    torch.set_float32_matmul_precision(precision)
    # setting it imports a compiler, which takes seconds
    if determinism != _determinism():
        enabled, warn_only = determinism
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = cudnn


def _determinism() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
