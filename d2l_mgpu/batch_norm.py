"""BatchNorm with the statistics of the whole batch, whose examples lie on several
ranks.

`torch.nn.SyncBatchNorm` is the same for GPUs, and faster there; this one runs anywhere.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from d2l_mgpu.collectives import all_reduce
from d2l_mgpu.processes.joining import this_rank


class SumOverRanks(torch.autograd.Function):
    """The sum of a tensor over all ranks, on each of them, as an operation with a
    gradient.

    What a rank adds enters the loss of *every* rank. So its gradient is a sum over
    ranks, too.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return SumOverRanks.apply(gradient)


class SyncBatchNorm(_BatchNorm):
    """BatchNorm of inputs (n, channels, ...) with the statistics of all ranks' values.

    n may differ between ranks, and be 0. In training mode all ranks have to call it,
    and to run backward, which is a collective too. In evaluation mode, and with one
    process, it is plain BatchNorm. Raises ValueError for another shape, and if a
    channel has fewer than two values on all ranks.
    """

    def forward(self, X: Tensor) -> Tensor:
        if not self.training or this_rank()[1] == 1:
            return super().forward(X)
        self._check_input_dim(X)
        # half is too coarse
        x = X.movedim(1, -1).to(torch.promote_types(X.dtype, torch.float32))
        mean, var, count = self.statistics(x)
        if self.track_running_stats:
            self.update_running(mean, var * count / (count - 1))
        Y = (x - mean) / (var + self.eps).sqrt()
        Y = Y if self.weight is None else Y * self.weight
        Y = Y if self.bias is None else Y + self.bias
        return Y.to(X.dtype).movedim(-1, 1)

    def statistics(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and variance of each channel of x (n, ..., channels) over all ranks,
        each of shape (channels,), and how many values of it there are.

        Two all-reduces: with the squares in the first one, the variance would be a
        small difference of large numbers wherever the mean is large, and lose digits.
        """
        x = x.flatten(0, -2)  # (values, channels)
        totals = SumOverRanks.apply(torch.cat([x.sum(dim=0), x.new_tensor([len(x)])]))
        mean, count = totals[:-1] / totals[-1], totals[-1]
        # On a GPU, reading the count waits, so only where it may matter.
        if len(x) < 2 and count < 2:
            raise ValueError(
                "BatchNorm needs two values a channel to train, but all ranks have "
                f"{int(count)}."
            )
        var = SumOverRanks.apply(((x - mean) ** 2).sum(dim=0)) / count
        return mean, var, count

    @torch.no_grad()
    def update_running(self, mean: Tensor, var: Tensor) -> None:
        """Move the running statistics towards `mean` and `var`, as BatchNorm does."""
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None and self.running_var is not None
        self.num_batches_tracked += 1
        rate = self.momentum
        if rate is None:  # then the plain mean over all batches
            rate = 1 / int(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
        self.running_var.lerp_(var.to(self.running_var.dtype), rate)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise ValueError(
                f"BatchNorm of {self.num_features} channels needs an input of shape "
                f"(n, {self.num_features}, ...), but it is {tuple(input.shape)}."
            )


def sync_batch_norm(net: nn.Module) -> nn.Module:
    """Turn every BatchNorm in `net` into a SyncBatchNorm, in place; return `net`.

    Parameters, statistics and modes stay what they are, so a `state_dict` of before
    still fits. Raises ValueError for a lazy layer, which does not know its number of
    channels yet.
    """
    for name, module in net.named_modules():
        if isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm):
            if isinstance(module, LazyModuleMixin):
                raise ValueError(
                    f"The layer {name!r} is lazy: let the network see an example "
                    "before."
                )
            module.__class__ = SyncBatchNorm  # the same layer, with another forward
    return net
