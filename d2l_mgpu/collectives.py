"""The collectives that the package uses between processes, right for tensors of any strides."""

import torch
import torch.distributed as dist
from torch import Tensor


@torch.no_grad()
def all_reduce(tensor: Tensor) -> None:
    """Overwrite `tensor` with its sum over all processes, on each of them.

    Gloo walks through the memory of a view (every other column, say) as if it were contiguous,
    and gives wrong sums without a word. So such a tensor travels as a contiguous copy.
    """
    travelling = tensor.contiguous()  # the tensor itself where it is contiguous already
    dist.all_reduce(travelling)
    if travelling is not tensor:
        tensor.copy_(travelling)


@torch.no_grad()
def broadcast(tensor: Tensor) -> None:
    """Overwrite `tensor` with that of rank 0; as a contiguous copy, see `all_reduce`."""
    travelling = tensor.contiguous()
    dist.broadcast(travelling, src=0)
    if travelling is not tensor:
        tensor.copy_(travelling)
