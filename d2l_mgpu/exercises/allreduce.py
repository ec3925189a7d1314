"""Checkers of the chapter on all-reduce."""

from collections import Counter
from collections.abc import Callable

from d2l_mgpu.exercises import Wrong, exercise

MACHINES = [(2e-5, 1e9, 2), (2e-5, 1e9, 8), (1e-6, 2.5e10, 8), (5e-4, 1e8, 3)]


@exercise("ring-schedule")
def ring_schedule(attempt: Callable[[int, int, int], int]) -> str:
    """`attempt(rank, i, world_size)` returns which shard the rank sends to the right in
    round i.

    Any schedule may pass. We play it: in the first `world_size - 1` rounds what arrives
    is added to the receiver's shard, in the others it replaces it. Each number is a
    Counter of its terms.
    """
    for k in (2, 3, 5, 8):
        held = [[Counter([rank]) for _ in range(k)] for rank in range(k)]
        for i in range(2 * (k - 1)):
            sent = [attempt(rank, i, k) for rank in range(k)]
            for rank, shard in enumerate(sent):
                if shard not in range(k):
                    raise Wrong(
                        f"in round {i}, rank {rank} of {k} sends shard {shard!r}; "
                        f"there are shards 0 to {k - 1}."
                    )
            moving = [held[rank][shard] for rank, shard in enumerate(sent)]
            for rank, (shard, terms) in enumerate(zip(sent, moving, strict=True)):
                right = (rank + 1) % k
                held[right][shard] = held[right][shard] + terms if i < k - 1 else terms
        for rank, shards in enumerate(held):
            for shard, terms in enumerate(shards):
                if terms != Counter(range(k)):
                    raise Wrong(
                        f"with {k} ranks, shard {shard} on rank {rank} is the sum of "
                        f"the terms of ranks {sorted(terms.elements())} in the end."
                    )
    return "with 2, 3, 5 and 8 ranks, each term is in each sum once, on all ranks."


@exercise("tree-bytes")
def tree_bytes(attempt: Callable[[int, int], int]) -> str:
    """`attempt(world_size, num_bytes)` returns what the busiest rank of the tree
    sends."""
    for k in [*range(1, 18), 100, 1000]:
        sent = [0] * k  # played by the rules of the tree, in whole tensors
        distance = 1
        while distance < k:
            for receiver in range(0, k - distance, 2 * distance):
                sent[receiver + distance] += 1  # upwards, to be summed
                sent[receiver] += 1  # and the result downwards
            distance *= 2
        size = 1000 + k
        expected, found = max(sent) * size, attempt(k, size)
        if found != expected:
            raise Wrong(
                f"with {k} ranks and tensors of {size:,} bytes, the busiest sends "
                f"{expected:,}, but you gave {found!r}."
            )
    return "for any number of ranks, powers of two and others."


@exercise("crossover-size")
def crossover_size(attempt: Callable[[float, float, int], float]) -> str:
    """`attempt(alpha, beta, k)` returns the size at which latency and bandwidth cost
    the same."""
    for alpha, beta, k in MACHINES:
        found = attempt(alpha, beta, k)
        latency = 2 * (k - 1) * alpha
        transfer = 2 * (k - 1) / k * found / beta
        if not abs(transfer - latency) <= 1e-6 * latency:
            raise Wrong(
                f"for alpha = {alpha:g} s, beta = {beta:g} bytes/s and {k} ranks you "
                f"gave {found:g} bytes: latency costs {latency:.3g} s, and the bytes "
                f"{transfer:.3g} s."
            )
    return (
        "below this size the number of messages decides, above it the number of bytes."
    )
