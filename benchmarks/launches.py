"""Row 10: what `launch` saves because its ranks are copies of a process that has imported torch."""

import os
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.pairs import Arms, compare
from d2l_mgpu import launch

PROCESSES = 2
LAUNCHES = 3  # a run: they take a third of a second each


def sum_of_ranks() -> tuple[float, str]:
    """What a rank computes, and how it was started."""
    total = torch.tensor(float(dist.get_rank()))
    dist.all_reduce(total)
    return total.item(), os.environ["D2L_MGPU_START"]


def launched(how: str, launches: int) -> list[tuple[float, str]]:
    """Launch so often, with processes started in this way."""
    before = os.environ.get("D2L_MGPU_START")
    os.environ["D2L_MGPU_START"] = how
    try:
        return [r for _ in range(launches) for r in launch(sum_of_ranks, num_devices=PROCESSES)]
    finally:
        del os.environ["D2L_MGPU_START"]
        if before is not None:
            os.environ["D2L_MGPU_START"] = before


def arms(launches: int) -> Arms:
    """Launches of processes that each import torch, and of copies."""
    for how in ("spawn", "server"):
        if launched(how, 1) != [(1.0, how)] * PROCESSES:
            raise AssertionError(f"the ranks of a launch by {how} return something else")
    facts = {"launches a run": launches}
    return Arms(lambda: launched("spawn", launches), lambda: launched("server", launches), facts)


def rows(pairs: int | None = None, *, launches: int = LAUNCHES) -> list[dict[str, Any]]:
    """The row of two processes."""
    return [compare("launch", arms, launches, pairs=pairs)]
