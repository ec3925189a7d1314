"""The collectives that the package uses between processes, right for tensors of any
strides."""

import torch
import torch.distributed as dist
from torch import Tensor


@torch.no_grad()
def all_reduce(tensor: Tensor) -> None:
    """Overwrite `tensor` with its sum over all processes, on each of them.

    Gloo walks through the memory of a view (every other column, say) as if it were
    contiguous, and gives wrong sums without an error. So such a tensor is sent as a
    contiguous copy.
    """
    contiguous = tensor.contiguous()  # the tensor itself where it is contiguous already
    dist.all_reduce(contiguous)
    if contiguous is not tensor:
        tensor.copy_(contiguous)


@torch.no_grad()
def broadcast(tensor: Tensor) -> None:
    """Overwrite `tensor` with that of rank 0; as a contiguous copy, see
    `all_reduce`."""
    contiguous = tensor.contiguous()
    dist.broadcast(contiguous, src=0)
    if contiguous is not tensor:
        tensor.copy_(contiguous)
