"""The checkers of the chapter on all-reduce tell right attempts from typical mistakes."""

import math

import pytest


def own_shard_first(rank, i, k):
    return (rank - i) % k


def next_shard_first(rank, i, k):
    return (rank + 1 - i) % k


def always_its_own(rank, i, k):
    return rank


def wrong_way_round(rank, i, k):
    return (rank + i) % k


def starts_again(rank, i, k):
    return (rank - i % (k - 1)) % k


def by_rounds(k, num_bytes):
    return math.ceil(math.log2(k)) * num_bytes


@pytest.mark.parametrize(
    ("name", "attempt"),
    [
        ("ring-schedule", own_shard_first),
        ("ring-schedule", next_shard_first),
        ("tree-bytes", by_rounds),
        ("tree-bytes", lambda k, num_bytes: (k - 1).bit_length() * num_bytes),
        ("crossover-size", lambda alpha, beta, k: k * alpha * beta),
    ],
)
def test_right_attempts_are_right(name, attempt, verdict):
    assert verdict(name, attempt).startswith("Right: ")


@pytest.mark.parametrize(
    ("name", "attempt", "what_went_wrong"),
    [
        ("ring-schedule", always_its_own, "with 2 ranks, shard 0 on rank 0 is the sum"),
        ("ring-schedule", wrong_way_round, "with 3 ranks, shard 0 on rank 0 is the sum"),
        ("ring-schedule", starts_again, "with 2 ranks, shard 0 on rank 0 is the sum"),
        ("ring-schedule", lambda rank, i, k: rank - i, "in round 1, rank 0 of 2 sends shard -1"),
        ("tree-bytes", lambda k, N: int(math.log2(k)) * N, "with 3 ranks"),
        ("tree-bytes", lambda k, N: 2 * math.ceil(math.log2(k)) * N, "with 2 ranks"),
        ("tree-bytes", lambda k, N: (k - 1) * N, "with 4 ranks and tensors of 1,004 bytes, the"),
        ("crossover-size", lambda alpha, beta, k: alpha * beta, "and 2 ranks you gave 20000 bytes"),
        (
            "crossover-size",
            lambda alpha, beta, k: 2 * alpha * beta,
            "and 8 ranks you gave 40000 bytes",
        ),
        ("crossover-size", lambda alpha, beta, k: math.nan, "you gave nan bytes"),
    ],
)
def test_other_attempts_are_told_where_they_fail(name, attempt, what_went_wrong, verdict):
    answer = verdict(name, attempt)
    assert answer.startswith("Not yet: ")
    assert what_went_wrong in answer
