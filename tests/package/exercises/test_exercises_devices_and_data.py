"""The checkers of the chapter on devices and data tell right attempts from wrong ones."""

import pytest


def fair(work, wait, clock):
    wait()
    start = clock()
    work()
    wait()
    return clock() - start


def never_waits(work, wait, clock):
    start = clock()
    work()
    return clock() - start


def bills_older_work(work, wait, clock):
    start = clock()
    work()
    wait()
    return clock() - start


def measures_after_a_warm_up_inside(work, wait, clock):
    work()
    return fair(work, wait, clock)


def forgets_to_return(work, wait, clock):
    fair(work, wait, clock)


def test_a_timer_that_waits_before_both_readings_is_right(verdict):
    assert verdict("fair-timer", fair).startswith("Right: ")


@pytest.mark.parametrize(
    ("attempt", "what_went_wrong"),
    [
        (never_waits, "timed as 0 s on a device with 0 s"),
        (bills_older_work, "timed as 7.0 s on a device with 5 s"),
        (measures_after_a_warm_up_inside, "called 2 times"),
        (forgets_to_return, "timed as None s"),
    ],
)
def test_a_wrong_timer_is_told_what_it_measured(attempt, what_went_wrong, verdict):
    answer = verdict("fair-timer", attempt)
    assert answer.startswith("Not yet: ")
    assert what_went_wrong in answer
