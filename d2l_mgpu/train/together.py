"""Work on files that succeeds or fails on all ranks together: an error of one is raised
by each."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from d2l_mgpu.train.checksums import CheckpointError

T = TypeVar("T")


def on_rank_0(act: Callable[[], T]) -> T:
    """Return `act()` of rank 0 on every rank, or raise its OSError or CheckpointError
    on each."""
    outcome: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            outcome[0] = act()
        except (OSError, CheckpointError) as error:
            outcome[1] = error
    dist.broadcast_object_list(outcome, src=0)
    result, problem = outcome
    if problem is not None:
        raise problem
    return result


def on_all_ranks(act: Callable[[], T]) -> T:
    """Return this rank's `act()`; if one rank's raises a CheckpointError, raise it on
    each."""
    result, problem = None, None
    try:
        result = act()
    except CheckpointError as error:
        problem = error
    problems: list[CheckpointError | None] = [None] * dist.get_world_size()
    dist.all_gather_object(problems, problem)
    for problem in filter(None, problems):
        raise problem
    return result  # type: ignore[return-value]
