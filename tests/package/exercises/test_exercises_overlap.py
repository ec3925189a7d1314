"""The checkers of the chapter on overlap tell right attempts from typical mistakes."""

import pytest

from d2l_mgpu.exercises.overlap import hidden_share


def until_the_limit_is_reached(sizes, bucket_bytes, first_bucket_bytes):
    buckets, limit = [], first_bucket_bytes
    for size in sizes:
        if buckets and buckets[-1] < limit:
            buckets[-1] += size
            continue
        limit = bucket_bytes if buckets else first_bucket_bytes
        buckets.append(size)
    return buckets


def never_above_the_limit(sizes, bucket_bytes, first_bucket_bytes):
    buckets, limit = [0], first_bucket_bytes
    for size in sizes:
        if buckets[-1] + size > limit and buckets[-1]:
            buckets.append(0)
            limit = bucket_bytes
        buckets[-1] += size
    return buckets


def one_limit(sizes, bucket_bytes, first_bucket_bytes):
    return until_the_limit_is_reached(sizes, bucket_bytes, bucket_bytes)


def one_by_one(sizes, bucket_bytes, first_bucket_bytes):
    return list(sizes)


def merged(backward, all_reduces):
    """Sweep over the all-reduces in the order in which they begin."""
    start, end = backward
    reached, busy, hidden = float("-inf"), 0.0, 0.0
    for begin, finish in sorted(all_reduces):
        begin, reached = max(begin, reached), max(finish, reached)
        busy += max(0.0, reached - begin)
        hidden += max(0.0, min(reached, end) - max(begin, start))
    return hidden / busy


def summed(backward, all_reduces):
    start, end = backward
    hidden = sum(max(0.0, min(b, end) - max(a, start)) for a, b in all_reduces)
    return hidden / sum(b - a for a, b in all_reduces)


def by_count(backward, all_reduces):
    return sum(b <= backward[1] for _, b in all_reduces) / len(all_reduces)


def begun_early_enough(backward, all_reduces):
    hidden = sum(max(0.0, min(b, backward[1]) - a) for a, b in all_reduces)
    return hidden / sum(b - a for a, b in all_reduces)


def slowest_rank_and_buckets_before(ready):
    starts = []
    for moments in zip(*ready, strict=True):
        starts.append(max([*moments, *starts]))
    return starts


def slowest_rank(ready):
    return [max(moments) for moments in zip(*ready, strict=True)]


def first_rank(ready):
    return slowest_rank_and_buckets_before(ready[:1])


@pytest.mark.parametrize(
    ("name", "attempt"),
    [
        ("buckets", until_the_limit_is_reached),
        ("hidden-share", hidden_share),
        ("hidden-share", merged),
        ("bucket-starts", slowest_rank_and_buckets_before),
    ],
)
def test_right_attempts_are_right(name, attempt, verdict):
    assert verdict(name, attempt).startswith("Right: ")


@pytest.mark.parametrize(
    ("name", "attempt", "what_went_wrong"),
    [
        ("buckets", never_above_the_limit, "into buckets of [5160], but you gave [40, 5120]"),
        ("buckets", one_limit, "into buckets of [20, 30, 10], but you gave [30, 30]"),
        ("buckets", one_by_one, "into buckets of [5160], but you gave [40, 5120]"),
        ("hidden-share", summed, "0.750 of the time is hidden, but you gave 0.8"),
        ("hidden-share", by_count, "all-reduces from 6 to 14: 0.500 of the time"),
        ("hidden-share", begun_early_enough, "from 4 to 8 and from 6 to 12: 0.750"),
        ("bucket-starts", slowest_rank, "[3, 3, 3], but you gave [3, 3, 2]"),
        ("bucket-starts", first_rank, "all ranks have started them at"),
    ],
)
def test_other_attempts_are_told_where_they_fail(name, attempt, what_went_wrong, verdict):
    answer = verdict(name, attempt)
    assert answer.startswith("Not yet: ")
    assert what_went_wrong in answer
