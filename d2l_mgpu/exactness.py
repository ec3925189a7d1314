"""What a GPU does only when asked: to round as its dtype says, and to repeat every bit.

CPUs do both by themselves, on one machine with one number of threads.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def without_tf32() -> Iterator[None]:
    """Inside, float32 is float32: GPUs since NVIDIA's Ampere would round what goes into a
    convolution to TF32, which keeps 10 bits of 23."""
    precision, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = cudnn


@contextmanager
def deterministic() -> Iterator[None]:
    """Inside, the same program on the same devices computes the same bits each time.

    Some kernels add in the order in which threads come, and libraries choose the quickest kernel
    anew in each run. Inside, such kernels are replaced by slower ones, or raise RuntimeError. Enter
    before the first operation on a CUDA device: cuBLAS reads CUBLAS_WORKSPACE_CONFIG only then.
    """
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.benchmark,
    )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.benchmark = before[2]
