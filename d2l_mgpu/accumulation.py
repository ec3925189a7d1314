"""Gradient accumulation: a batch that does not fit into memory is taken in
micro-batches.

The gradients of the micro-batches add up, and one step follows. With
DistributedDataParallel (DDP) or `Bucketed` the processes need to exchange gradients
once, at the last micro-batch. `no_sync` leaves out the other exchanges if it covers
forward *and* backward: DDP decides in the forward pass whether the next backward pass
exchanges gradients, `Bucketed` in the backward pass.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from d2l_mgpu.arguments import integer


def without_exchange(replica: nn.Module) -> AbstractContextManager:
    """Inside, gradients stay in this process: `no_sync` of DDP or `Bucketed`; other
    modules need nothing."""
    return getattr(replica, "no_sync", nullcontext)()


def backward_in_parts(
    replica: nn.Module, X: Tensor, y: Tensor, num_parts: int, weight: float
) -> Tensor:
    """Add to the gradients what one backward of `weight * cross_entropy(replica(X), y,
    reduction="sum")` would, in `num_parts` micro-batches; return that loss, detached.

    DDP and `Bucketed` exchange the gradients once. X may have fewer rows than
    `num_parts`, or none.
    """
    num_parts = integer("num_parts", num_parts)
    if len(X) == 0:  # the other ranks wait: take part with an example of weight zero
        X, y, weight = X.new_zeros((1, *X.shape[1:])), y.new_zeros(1), 0.0
    num_parts, total = min(num_parts, len(X)), torch.zeros((), device=X.device)
    parts = zip(X.tensor_split(num_parts), y.tensor_split(num_parts), strict=True)
    for number, (X_part, y_part) in enumerate(parts, start=1):
        with nullcontext() if number == num_parts else without_exchange(replica):
            loss = weight * F.cross_entropy(replica(X_part), y_part, reduction="sum")
            loss.backward()
        total = total + loss.detach()
    return total
