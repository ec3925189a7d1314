"""Compare two ways of doing the same, the arms, by how long they take in one and the same run.

A machine is faster in one minute than in the next. So the arms take turns in random order, and
what counts is the ratio of two runs that were neighbors: a pair. The second arm runs once more in
each round, against itself. That control must come out as 1; where it does not, the machine was too
restless, and the run is inconclusive, whatever the ratio says.
"""

import logging
import os
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch.distributed as dist

from benchmarks.goals import GOALS
from benchmarks.results import interval
from d2l_mgpu import RankError, launch, limit_threads

logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it misses a GPU, loudly
from torch.utils.benchmark.utils.timer import timer  # noqa: E402 (waits for a GPU, then reads)

Round = tuple[float, float, float]  # seconds of the first arm, the second, the second again
WARM_UPS = 3
RESTLESS = 0.03  # how far from 1 the control may be


@dataclass(frozen=True)
class Arms:
    """Two ways of doing the same, and what a reader has to know about them."""

    first: Callable[[], object]
    second: Callable[[], object]
    facts: Mapping[str, Any] = field(default_factory=dict)


def alone() -> None:
    """What an arm in one process waits for before and after it runs: nobody."""


def progress(count: int) -> Iterable[int]:
    """`range(count)` with a bar on stderr; a GPU machine that has only torch shows none."""
    try:
        from tqdm import tqdm
    except ImportError:
        return range(count)
    return tqdm(range(count), file=sys.stderr, mininterval=1)


def measure(
    arms: Arms,
    *,
    pairs: int,
    warm_ups: int = WARM_UPS,
    barrier: Callable[[], object] = alone,
    seed: int = 0,
    clock: Callable[[], float] = timer,
    show: bool = True,
) -> list[Round]:
    """Run both arms, and the second once more, in random order, `pairs` times after `warm_ups`
    rounds that are dropped; return the rounds.

    Where arms run on several processes, each of them calls this with the same `seed`, which
    decides the order, and with one as `barrier`. Its clock then shows its own seconds, without
    those in the barriers; see `slowest`. `show` draws a progress bar on stderr.
    """
    chance = random.Random(seed)
    runs = (arms.first, arms.second, arms.second)
    rounds = []
    for _ in progress(warm_ups + pairs) if show else range(warm_ups + pairs):
        seconds = [0.0, 0.0, 0.0]
        for which in chance.sample(range(3), 3):
            barrier()
            start = clock()
            runs[which]()
            seconds[which] = clock() - start
            barrier()
        rounds.append((seconds[0], seconds[1], seconds[2]))
    return rounds[warm_ups:]


def slowest(on_ranks: Sequence[Sequence[Round]]) -> list[Round]:
    """What the processes measured together: a run lasts as long as on the slowest of them."""
    worst = np.max(np.asarray(on_ranks), axis=0)
    return [(a, b, c) for a, b, c in worst.tolist()]


def load() -> list[float] | None:
    """How many processes wanted to run, on average of the last 1, 5 and 15 minutes."""
    return [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None


def judged(
    name: str, rounds: Sequence[Round], facts: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What the rounds say about the goal called `name`, as a row of a results file.

    `verdict` is "met" or "missed", by the median ratio, or "inconclusive". `facts` says what the
    arms did: the batch, the bytes, the threads.
    """
    goal = GOALS[name]
    first, second, again = np.asarray(rounds, dtype=float).T
    ratios = first / second
    ratio, control = float(np.median(ratios)), float(np.median(again / second))
    calm = abs(control - 1) <= RESTLESS
    return {
        "name": name,
        "row": goal.row,
        "ratio": ratio,
        "interval": interval(ratios),
        "goal": goal.ratio,
        "sense": goal.sense,
        "verdict": ("met" if goal.met_by(ratio) else "missed") if calm else "inconclusive",
        "control": control,
        "pairs": len(ratios),
        "seconds": [float(np.median(first)), float(np.median(second))],
        "facts": dict(facts or {}),
        "rounds": [[float(f"{x:.6g}") for x in each] for each in rounds],
    }


def refused(name: str, why: object) -> dict[str, Any]:
    """The row of a comparison whose arms do not compute the same: there is nothing to time."""
    return {"name": name, "row": GOALS[name].row, "verdict": "refused", "why": str(why)}


def on_this_rank(
    make: Callable[..., Arms], args: Sequence[Any], pairs: int
) -> tuple[list[Round], Mapping[str, Any]]:
    """Make the arms and measure them in this process, together with its peers if it has any."""
    limit_threads()
    arms = make(*args)
    if not dist.is_initialized():
        return measure(arms, pairs=pairs), arms.facts
    rounds = measure(arms, pairs=pairs, barrier=dist.barrier, show=dist.get_rank() == 0)
    return rounds, arms.facts


def compare(
    name: str,
    make: Callable[..., Arms],
    *args: Any,
    processes: int = 1,
    pairs: int | None = None,
) -> dict[str, Any]:
    """Measure the arms that `make(*args)` returns, and return the row `name` of the results.

    `make` is called in each of the processes. It insists that both arms compute the same: where it
    raises AssertionError, the row is refused. `pairs` is what the goal asks for, unless given.
    """
    before, pairs = load(), pairs or GOALS[name].pairs
    try:
        if processes == 1:
            on_ranks = [on_this_rank(make, args, pairs)]
        else:
            on_ranks = launch(on_this_rank, make, args, pairs, num_devices=processes)
    except AssertionError as error:
        return refused(name, error)
    except RankError as error:
        if isinstance(error.__cause__, AssertionError):
            return refused(name, error.__cause__)
        raise
    row = judged(name, slowest([rounds for rounds, _ in on_ranks]), on_ranks[0][1])
    return row | {"load": [before, load()], "processes": processes}
