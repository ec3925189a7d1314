"""The checkers of the concise chapter tell right attempts from typical mistakes."""

from itertools import pairwise

import pytest


def rounded_ends(batch_size, speeds):
    ends = [round(batch_size * sum(speeds[:r]) / sum(speeds)) for r in range(len(speeds) + 1)]
    return [end - start for start, end in pairwise(ends)]


def largest_remainders(batch_size, speeds):
    shares = [batch_size * speed / sum(speeds) for speed in speeds]
    sizes = [int(share) for share in shares]
    by_remainder = sorted(range(len(sizes)), key=lambda r: sizes[r] - shares[r])
    for rank in by_remainder[: batch_size - sum(sizes)]:
        sizes[rank] += 1
    return sizes


def equal_sizes(batch_size, speeds):
    return [batch_size // len(speeds)] * len(speeds)


def each_rounded(batch_size, speeds):
    return [round(batch_size * speed / sum(speeds)) for speed in speeds]


def not_rounded(batch_size, speeds):
    return [batch_size * speed / sum(speeds) for speed in speeds]


def rest_to_the_last(batch_size, speeds):
    sizes = [int(batch_size * speed / sum(speeds)) for speed in speeds]
    return [*sizes[:-1], batch_size - sum(sizes[:-1])]


def without_the_last(batch_size, speeds):
    return rounded_ends(batch_size, speeds[:-1])


@pytest.mark.parametrize("attempt", [rounded_ends, largest_remainders])
def test_sizes_that_add_up_and_follow_the_speeds_are_right(attempt, verdict):
    assert verdict("proportional-shards", attempt).startswith("Right: ")


@pytest.mark.parametrize(
    ("attempt", "what_went_wrong"),
    [
        (equal_sizes, "you gave [24, 24]; the share of device 0 is 36.0 examples"),
        (each_rounded, "you gave [2, 2, 2]; they add up to 6 instead of 7"),
        (not_rounded, "a size is a whole number"),
        (rest_to_the_last, "you gave [95, 1, 1, 3]; the share of device 3 is 0.2 examples"),
        (without_the_last, "one size for each device"),
    ],
)
def test_other_sizes_are_told_on_which_batch_they_fail(attempt, what_went_wrong, verdict):
    answer = verdict("proportional-shards", attempt)
    assert answer.startswith("Not yet: ")
    assert what_went_wrong in answer


def ranks_times_share(sizes):
    return [len(sizes) * size / sum(sizes) for size in sizes]


def ones(sizes):
    return [1.0] * len(sizes)


def share_only(sizes):
    return [size / sum(sizes) for size in sizes]


def test_the_factor_is_the_world_size_times_the_share(verdict):
    assert verdict("mean-loss-weights", ranks_times_share).startswith("Right: ")


@pytest.mark.parametrize(
    ("attempt", "what_went_wrong"),
    [
        (ones, "for shards of [5, 3] your factors [1.0, 1.0] make a gradient of"),
        (share_only, "for shards of [5, 3] your factors [0.625, 0.375]"),
        (lambda sizes: [1.0], "for shards of [5, 3] you gave 1 factors"),
    ],
)
def test_other_factors_are_shown_the_gradient_they_make(attempt, what_went_wrong, verdict):
    answer = verdict("mean-loss-weights", attempt)
    assert answer.startswith("Not yet: ")
    assert what_went_wrong in answer
