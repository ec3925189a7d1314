"""What a training run is made with."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """What decides which weights come out: a run resumes only with the recipe it began
    with.

    `batch_size` is the number of examples a step takes over all ranks, in `accumulate`
    micro-batches a rank. `schedule` is 'constant' or 'cosine' (to 0 at the end of
    `epochs`). `fast` takes the quickest way on the device at hand (`d2l_mgpu.fast`),
    which rounds differently. `double` computes in float64: slower, and fit for
    comparing runs that round differently. `deterministic` makes GPUs repeat every bit
    (`d2l_mgpu.exactness`); CPUs do anyway.
    """

    batch_size: int = 256
    accumulate: int = 1
    epochs: int = 10
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: str = "constant"
    seed: int = 0
    fast: bool = False
    double: bool = False
    deterministic: bool = False
