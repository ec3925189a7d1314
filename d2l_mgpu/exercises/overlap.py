"""Checkers of the chapter on reducing while backward still runs."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import nn

from d2l_mgpu.buckets import fill_buckets
from d2l_mgpu.exercises import Wrong, exercise

# bytes of the gradients, in the order in which they become ready; limit of the others
SIZES = [
    ([40, 5120], 100, 50),
    ([10, 10, 10, 10, 10], 20, 20),
    ([10, 10, 10, 10, 10, 10], 30, 15),
    ([100, 100, 100], 1, 1),
    ([5, 5, 90, 5, 90, 5], 100, 10),
    ([3], 100, 100),
]
TIMES = [  # backward from, to; all-reduces from, to
    ((0.0, 10.0), [(2.0, 4.0), (5.0, 9.0)]),
    ((0.0, 10.0), [(10.0, 12.0)]),
    ((0.0, 10.0), [(6.0, 14.0)]),
    ((0.0, 10.0), [(4.0, 8.0), (6.0, 12.0)]),
    ((5.0, 10.0), [(4.0, 6.0), (9.0, 13.0)]),
    ((0.0, 10.0), [(6.0, 12.0), (1.0, 9.0), (2.0, 3.0)]),
]
READY = [  # when each bucket is full, on each rank
    [[1, 2, 3], [1, 2, 3]],
    [[3, 1, 2], [1, 3, 2]],
    [[5, 1, 1], [1, 5, 1], [2, 2, 9]],
    [[4], [7]],
    [[4, 1, 2]],
]


@exercise("buckets")
def buckets(attempt: Callable[[Sequence[int], int, int], Sequence[int]]) -> str:
    """`attempt(sizes, bucket_bytes, first_bucket_bytes)` returns the bytes of each
    bucket."""
    for sizes, limit, first in SIZES:
        params = [nn.Parameter(torch.zeros(n, dtype=torch.uint8), False) for n in sizes]
        expected = [bucket.flat.nbytes for bucket in fill_buckets(params, limit, first)]
        found = attempt(list(sizes), limit, first)
        if list(found) != expected:
            raise Wrong(
                f"gradients of {sizes} bytes, with a limit of {first} for the first "
                f"bucket and {limit} for the others, go into buckets of {expected}, "
                f"but you gave {found!r}."
            )
    return "every bucket takes what comes until it has reached its limit."


def hidden_share(
    backward: tuple[float, float], all_reduces: list[tuple[float, float]]
) -> float:
    """Which share of the time in which any all-reduce is under way lies within
    backward?

    Cut time where something begins or ends; between two cuts nothing changes.
    """
    start, end = backward
    cuts = sorted({start, end, *(time for span in all_reduces for time in span)})
    hidden = busy = 0.0
    for a, b in pairwise(cuts):
        if any(begin <= a and b <= finish for begin, finish in all_reduces):
            busy += b - a
            hidden += (b - a) * (start <= a and b <= end)
    return hidden / busy


@exercise("hidden-share")
def hidden(
    attempt: Callable[[tuple[float, float], list[tuple[float, float]]], float],
) -> str:
    """`attempt(backward, all_reduces)` returns the share of the communication that is
    hidden."""
    for backward, all_reduces in TIMES:
        expected, found = (
            f(backward, list(all_reduces)) for f in (hidden_share, attempt)
        )
        if not abs(found - expected) < 1e-9:
            raise Wrong(
                f"backward lasts from {backward[0]:g} to {backward[1]:g}, all-reduces "
                "from "
                + " and from ".join(f"{a:g} to {b:g}" for a, b in all_reduces)
                + f": {expected:.3f} of the time is hidden, but you gave {found!r}."
            )
    return (
        "time that two all-reduces share counts once, and time after backward is not "
        "hidden."
    )


@exercise("bucket-starts")
def bucket_starts(attempt: Callable[[list[list[float]]], list[float]]) -> str:
    """`attempt(ready)` returns when each bucket's all-reduce can start on all ranks, if
    `ready[rank][bucket]` is when it is full there and buckets are sent in their
    order."""
    for ready in READY:
        expected, latest = [], 0.0
        for moments in zip(*ready, strict=True):
            latest = max(latest, *moments)
            expected.append(latest)
        found = attempt([list(row) for row in ready])
        if list(found) != expected:
            raise Wrong(
                f"with buckets that are full at {ready[0]} on rank 0"
                + "".join(
                    f", at {row} on rank {rank}"
                    for rank, row in enumerate(ready)
                    if rank
                )
                + f", all ranks have started them at {expected}, "
                f"but you gave {found!r}."
            )
    return "a bucket waits for its slowest rank, and for the buckets before it."
