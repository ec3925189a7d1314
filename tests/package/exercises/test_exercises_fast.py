"""The checkers of the chapter on an epoch's time tell right attempts from typical mistakes."""

import math

import pytest


def times_add_up(share, factor):
    return 1 / ((1 - share) + share / factor)


def speeds_add_up(share, factor):
    return 1 + share * (factor - 1)


def as_if_all_were_faster(share, factor):
    return factor


def only_the_bound(share, factor):
    return math.inf if share == 1 else 1 / (1 - share)


def by_exponent(weight):
    return 2.0 ** (math.frexp(weight)[1] - 8)


def at_one_only(weight):
    return 1 / 128


def off_by_one_power(weight):
    return 2.0 ** (math.frexp(weight)[1] - 7)


def in_proportion(weight):
    return weight / 128


def float32_gap(weight):
    return math.ldexp(1.0, math.frexp(weight)[1] - 24)


def in_every_epoch_and_once(n, side, epochs):
    return epochs * n * (4 * side**2 + 8), n * (side**2 + 8) + epochs * n * 8


def without_labels(n, side, epochs):
    return epochs * n * 4 * side**2, n * side**2 + epochs * n * 8


def one_epoch_only(n, side, epochs):
    return n * (4 * side**2 + 8), n * (side**2 + 8) + n * 8


def sent_again_each_time(n, side, epochs):
    return epochs * n * (4 * side**2 + 8), epochs * n * (side**2 + 16)


@pytest.mark.parametrize(
    ("name", "attempt", "right"),
    [
        ("amdahl", times_add_up, True),
        ("amdahl", speeds_add_up, False),
        ("amdahl", as_if_all_were_faster, False),
        ("amdahl", only_the_bound, False),
        ("bf16-gap", by_exponent, True),
        ("bf16-gap", at_one_only, False),
        ("bf16-gap", off_by_one_power, False),
        ("bf16-gap", in_proportion, False),
        ("bf16-gap", float32_gap, False),
        ("bytes-to-device", in_every_epoch_and_once, True),
        ("bytes-to-device", without_labels, False),
        ("bytes-to-device", one_epoch_only, False),
        ("bytes-to-device", sent_again_each_time, False),
    ],
)
def test_an_attempt_is_judged(name, attempt, right, verdict):
    assert verdict(name, attempt).startswith("Right: " if right else "Not yet: ")
