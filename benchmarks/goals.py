"""What is compared with what, and the ratio that each comparison is to reach."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Goal:
    """The claim that seconds of the first arm / seconds of the second are `sense` `ratio`."""

    row: int  # of the table
    title: str  # "the first arm / the second"
    sense: Literal["<=", ">="]
    ratio: float

    @property
    def pairs(self) -> int:
        """How many pairs settle it: a claim of a few percent takes more."""
        return 30 if 0.9 <= self.ratio <= 1.1 else 15

    def met_by(self, ratio: float) -> bool:
        return ratio <= self.ratio if self.sense == "<=" else ratio >= self.ratio


GOALS = {
    "scratch, k=2": Goal(1, "Our step from scratch: 2 replicas / 1 device (LeNet)", "<=", 1.05),
    "scratch, k=4": Goal(1, "Our step from scratch: 4 replicas / 1 device (LeNet)", "<=", 1.15),
    "ddp, LeNet": Goal(2, "DDP in 2 processes / 2 processes on their own (LeNet)", "<=", 1.05),
    "ddp, ResNet-18": Goal(
        2, "DDP in 2 processes / 2 processes on their own (ResNet-18)", "<=", 1.08
    ),
    "buckets": Goal(3, "Our buckets in Python / DDP (ResNet-18, 2 processes)", "<=", 1.05),
    "ring, 4 MB": Goal(4, "Our ring all-reduce / gloo (4 MB, 2 processes)", "<=", 1.1),
    "ring, 44.7 MB": Goal(4, "Our ring all-reduce / gloo (44.7 MB, 2 processes)", "<=", 1.1),
    "shared, 4 MB": Goal(5, "gloo / our all-reduce in shared memory (4 MB)", ">=", 3.0),
    "shared, 44.7 MB": Goal(5, "gloo / our all-reduce in shared memory (44.7 MB)", ">=", 3.0),
    "epoch": Goal(6, "An epoch as published / ours (LeNet on the CPU)", ">=", 1.35),
    "gpu epoch": Goal(7, "An epoch as published / ours (ResNet-18 on a GPU)", ">=", 8.0),
    "gpu graph": Goal(8, "A step / the same step as a CUDA graph (LeNet on a GPU)", ">=", 5.0),
    "build, languages": Goal(9, "Four languages in one build / in four builds", "<=", 0.35),
    "build, warm": Goal(9, "A build when nothing has changed / the first build", "<=", 0.05),
    "launch": Goal(10, "Launch of 2 processes: spawn / fork server", ">=", 4.0),
}
"""All comparisons by name; the titles are words of the site, and are translated."""
