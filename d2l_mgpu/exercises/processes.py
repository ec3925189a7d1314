"""Checkers of the chapter on processes, from a notebook cell to a cluster."""

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import DistributedSampler

from d2l_mgpu.exercises import Wrong, exercise

NODES = [[1], [2, 2], [4, 2], [2, 4, 1], [1, 1, 8]]  # processes on each node
DEALS = [(10, 4), (8, 4), (9, 2), (3, 7), (1, 1), (101, 8)]  # examples and ranks
# seconds to save, between failures
COSTS = [(10.0, 86_400.0), (60.0, 7_200.0), (1.0, 3_600.0)]


@exercise("global-rank")
def global_rank(attempt: Callable[[Sequence[int], int, int], int]) -> str:
    """`attempt(processes, node, local_rank)` returns the rank: 0, 1, 2 ... node by
    node."""
    for processes in NODES:
        places = [
            (n, local) for n, count in enumerate(processes) for local in range(count)
        ]
        for rank, (node, local_rank) in enumerate(places):
            found = attempt(processes, node, local_rank)
            if found != rank:
                raise Wrong(
                    f"with {processes} processes on the nodes, local rank {local_rank} "
                    f"on node {node} is rank {rank}, but you gave {found!r}."
                )
    return "every process has a rank of its own, node by node."


@exercise("examples-that-count")
def examples_that_count(attempt: Callable[[int, int, int], int]) -> str:
    """`attempt(num_examples, rank, world_size)` returns how many of the examples that
    `DistributedSampler` deals to the rank, not shuffled, no other place has."""
    for num_examples, world_size in DEALS:
        examples: Any = range(num_examples)
        samplers: list[DistributedSampler[int]] = [
            DistributedSampler(
                examples, num_replicas=world_size, rank=rank, shuffle=False
            )
            for rank in range(world_size)
        ]
        seen: set[int] = set()
        counts = [0] * world_size
        for deal in zip(*samplers, strict=True):  # in the order in which they are dealt
            for rank, index in enumerate(deal):
                counts[rank] += index not in seen
                seen.add(index)
        for rank, expected in enumerate(counts):
            found = attempt(num_examples, rank, world_size)
            if found != expected:
                raise Wrong(
                    f"of {num_examples} examples, rank {rank} of {world_size} gets "
                    f"{list(samplers[rank])}, of which {expected} count; you gave "
                    f"{found!r}."
                )
    return "each example counts once, however many ranks there are."


@exercise("checkpoint-interval")
def checkpoint_interval(attempt: Callable[[float, float], float]) -> str:
    """`attempt(save_seconds, seconds_between_failures)` returns the interval that loses
    least."""
    for save, failure in COSTS:

        def lost(
            interval: float, save: float = save, failure: float = failure
        ) -> float:
            """The share of the time that goes into saving or is lost by a failure."""
            return save / interval + interval / (2 * failure)

        interval, least = attempt(save, failure), lost((2 * save * failure) ** 0.5)
        call = (
            f"for {save:g} s to save and a failure every {failure:g} s you gave "
            f"{interval!r}"
        )
        if not interval > 0:
            raise Wrong(f"{call}; it takes a number of seconds above 0.")
        if lost(interval) > 1.001 * least:
            raise Wrong(
                f"{call}: {lost(interval):.2%} of the time is lost; {least:.2%} can do."
            )
    return (
        "saving and losing steps cost equally much, and together as little as possible."
    )
