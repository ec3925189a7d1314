"""Checkers of the chapter on training on several GPUs concisely."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from d2l_mgpu.exercises import Wrong, exercise

SPEEDS = [  # batch size and examples a second of each device
    (48, [3.0, 1.0]),
    (64, [1.0, 1.0]),
    (7, [1.0, 1.0, 1.0]),
    (100, [50.0, 1.0, 1.0, 0.1]),
    (2, [1.0, 1.0, 1.0]),
    (32, [5.0]),
]
SHARDS = [[5, 3], [4, 4], [4, 4, 4, 1], [3, 2, 2], [1, 0]]


@exercise("proportional-shards")
def proportional_shards(
    attempt: Callable[[int, Sequence[float]], Sequence[int]],
) -> str:
    """`attempt(batch_size, speeds)` returns whole sizes that add up to the batch, each
    at most one example away from its device's share of the total speed."""
    for batch_size, speeds in SPEEDS:
        sizes = list(attempt(batch_size, speeds))
        call = f"for a batch of {batch_size} and speeds {speeds} you gave {sizes}"
        if len(sizes) != len(speeds):
            raise Wrong(f"{call}; it takes one size for each device.")
        if not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise Wrong(f"{call}; a size is a whole number of examples, 0 or more.")
        if sum(sizes) != batch_size:
            raise Wrong(f"{call}; they add up to {sum(sizes)} instead of {batch_size}.")
        for rank, (size, speed) in enumerate(zip(sizes, speeds, strict=True)):
            share = batch_size * speed / sum(speeds)
            if abs(size - share) > 1 + 1e-9:
                raise Wrong(
                    f"{call}; the share of device {rank} is {share:.1f} examples."
                )
    return "the sizes add up to the batch and follow the speeds."


@exercise("mean-loss-weights")
def mean_loss_weights(attempt: Callable[[Sequence[int]], Sequence[float]]) -> str:
    """`attempt(sizes)` returns the factor of each rank's mean loss that makes the
    average over ranks the mean over the batch; decided on random gradients, one for
    each example."""
    generator = torch.Generator().manual_seed(0)
    for sizes in SHARDS:
        weights = list(attempt(sizes))
        if len(weights) != len(sizes):
            raise Wrong(
                f"for shards of {sizes} you gave {len(weights)} factors: one for each."
            )
        gradients = torch.randn(sum(sizes), dtype=torch.float64, generator=generator)
        shards = gradients.split(sizes)
        means = [shard.mean() if len(shard) else torch.zeros(()) for shard in shards]
        found = _average(
            [weight * mean for weight, mean in zip(weights, means, strict=True)]
        )
        if not torch.isclose(found, gradients.mean(), rtol=1e-9, atol=1e-12):
            raise Wrong(
                f"for shards of {sizes} your factors {weights} make a gradient of "
                f"{found:.4f}, but the mean over the batch is {gradients.mean():.4f}."
            )
    return (
        "the average over ranks is the mean over the batch, also for unequal and "
        "empty shards."
    )


def _average(values: Sequence[Tensor]) -> Tensor:
    """What DDP makes of one value from each rank."""
    return torch.stack([value.double() for value in values]).mean()
