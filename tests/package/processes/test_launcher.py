"""`launch` returns every rank's result, and names the rank that failed."""

import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist

from d2l_mgpu import RankError, get_devices, launch, rank_device

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("each_start")]


# What the ranks run.


def sum_over_ranks(x: float) -> tuple[int, float, str, torch.device]:
    total = torch.tensor(x + dist.get_rank())
    print("first line of", dist.get_rank())
    print("second line of", dist.get_rank(), file=sys.stderr)
    dist.all_reduce(total)
    return dist.get_rank(), total.item(), dist.get_backend(), rank_device()


def rank_1_does(act: Callable[[], None]) -> None:
    if dist.get_rank() == 1:
        act()
    dist.barrier()


def misuse() -> None:
    raise LookupError("no such shard")


def exit_with_3() -> None:
    os._exit(3)


def exit_with_0() -> None:
    os._exit(0)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def no_pickle() -> Iterator[int]:
    return (i for i in range(3))


class OnlyThere:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("three",)


def sleep_in_native_code() -> None:
    ctypes.PyDLL(None).sleep(600)  # holds Python's lock, so no other Python code runs here


def sleep_deaf_to_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    time.sleep(600)


def return_but_leave_a_thread_running() -> str:
    threading.Thread(target=time.sleep, args=(600,)).start()
    return "done"


# Results.


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_results_and_output_come_in_rank_order(capfd: pytest.CaptureFixture[str]) -> None:
    device = get_devices(2, quiet=True)
    results = launch(sum_over_ranks, 10.0, num_devices=2)
    assert [(rank, total) for rank, total, _, _ in results] == [(0, 21.0), (1, 21.0)]
    assert [where for *_, where in results] == device
    if len(set(device)) == 1:
        assert {backend for *_, backend, _ in results} == {"gloo"}
    out, err = capfd.readouterr()
    assert out.splitlines() == [
        f"[rank {r}] {line} line of {r}" for r in (0, 1) for line in ("first", "second")
    ]
    assert err == ""


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_arguments_and_results_may_be_huge_and_leave_the_memory_again() -> None:
    huge = torch.arange(125_000_000.0)  # 500 MB
    before = psutil.Process().memory_info().rss
    [negative] = launch(torch.neg, huge, num_devices=1)
    assert torch.equal(negative, -huge)
    del negative
    gc.collect()
    assert psutil.Process().memory_info().rss < before + 100e6


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_a_rank_may_launch(capfd: pytest.CaptureFixture[str]) -> None:
    def total() -> list[int]:
        print("sums over", dist.get_world_size())
        return launch(sum_over_ranks, 10.0 * dist.get_rank(), num_devices=3)

    results = launch(total, num_devices=2)
    assert [[(rank, sum_) for rank, sum_, *_ in ranks] for ranks in results] == [
        [(0, 3.0), (1, 3.0), (2, 3.0)],
        [(0, 33.0), (1, 33.0), (2, 33.0)],
    ]
    assert capfd.readouterr().out.splitlines() == [
        f"[rank {outer}] {line}"
        for outer in (0, 1)
        for line in ["sums over 2"]
        + [f"[rank {r}] {nth} line of {r}" for r in (0, 1, 2) for nth in ("first", "second")]
    ]


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_one_device_is_one_process_even_when_launched_from_another_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        [(pid, threads)] = pool.submit(
            launch, lambda: (os.getpid(), torch.get_num_threads()), num_devices=1
        ).result()
    assert pid != os.getpid()
    assert threads == torch.get_num_threads()


def test_outside_launch_rank_device_is_the_first_device() -> None:
    assert rank_device() == get_devices(1, quiet=True)[0]


# Errors.


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("leaves_nothing_behind")
def test_the_rank_that_failed_is_named_in_10_of_10_runs_while_the_other_waits() -> None:
    for _ in range(10):
        with pytest.raises(RankError, match=r"^rank 1 failed: LookupError") as caught:
            launch(rank_1_does, misuse, num_devices=2)
        assert caught.value.rank == 1
        assert 'raise LookupError("no such shard")' in caught.value.traceback
        assert caught.value.traceback in str(caught.value)
        assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize(
    ("act", "how"),
    [(exit_with_3, "exit code 3"), (exit_with_0, "exit code 0"), (kill_itself, "SIGKILL")],
)
@pytest.mark.usefixtures("leaves_nothing_behind")
def test_a_worker_that_dies_is_named_with_its_end(
    act: Callable[[], None], how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RankError, match=f"^rank 1 died .*{how}") as caught:
        launch(rank_1_does, act, num_devices=2)
    assert caught.value.rank == 1
    assert capfd.readouterr() == ("", "")  # and torch's own error log stays out of it


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_processes_that_cannot_be_started_are_an_error_and_not_a_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(resource_tracker, "ensure_running", refuse)
    with pytest.raises(RuntimeError, match="could not be started: no more processes"):
        launch(len, [1], num_devices=1)


@pytest.mark.parametrize(
    ("code", "call"),
    [
        (0, r"sys.exit\(0\)"),
        (3, r"sys.exit\(3\)"),
        (None, r"sys.exit\(\)"),
        ("no coffee", r"sys.exit\('no coffee'\)"),
    ],
)
@pytest.mark.usefixtures("leaves_nothing_behind")
def test_a_function_that_calls_sys_exit_is_named_with_the_call(code: Any, call: str) -> None:
    message = rf"^rank 1 failed: it called {call}; let the function return instead\n\nTraceback"
    with pytest.raises(RankError, match=message) as caught:
        launch(rank_1_does, lambda: sys.exit(code), num_devices=2)
    assert "lambda: sys.exit(code)" in caught.value.traceback
    assert isinstance(caught.value.__cause__, SystemExit)


@pytest.mark.parametrize(
    "sleep", [lambda: time.sleep(600), sleep_in_native_code, sleep_deaf_to_signals]
)
@pytest.mark.usefixtures("leaves_nothing_behind")
def test_a_timeout_names_the_ranks_that_still_run_whatever_they_are_stuck_in(
    sleep: Callable[[], None],
) -> None:
    with pytest.raises(TimeoutError, match=r"2 of 2 ranks .* after 10 seconds: 0, 1; "):
        launch(sleep, num_devices=2, timeout=10)  # starting takes some of it


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_a_process_that_does_not_end_when_its_function_has_returned_is_not_waited_for() -> None:
    assert launch(return_but_leave_a_thread_running, num_devices=2) == ["done", "done"]


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_a_result_that_cannot_be_sent_back_is_named() -> None:
    with pytest.raises(RankError, match="the result of rank 0, a generator, cannot be sent back"):
        launch(no_pickle, num_devices=1)


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_a_result_that_cannot_be_unpickled_is_named() -> None:
    with pytest.raises(RankError, match=r"^rank 1 returned what cannot be unpickled here .*three"):
        launch(lambda: OnlyThere() if dist.get_rank() else None, num_devices=2)


@pytest.mark.parametrize(
    ("fn", "arguments", "options", "error", "message"),
    [
        (print, [], {"num_devices": 0}, ValueError, "num_devices must be an integer"),
        (print, [], {"num_devices": -1}, ValueError, "num_devices must be an integer"),
        (print, [], {"num_devices": 2.0}, ValueError, "num_devices must be an integer"),
        (print, [], {"num_devices": "2"}, ValueError, "num_devices must be an integer"),
        (print, [], {"num_devices": True}, ValueError, "num_devices must be an integer"),
        (print, [], {"num_devices": 10_000}, ValueError, "num_devices is 10000, but each is a pro"),
        (3, [], {"num_devices": 1}, TypeError, "launch runs a function"),
        (None, [], {"num_devices": 1}, TypeError, "launch runs a function"),
        (print, [], {"num_devices": 1, "timeout": 0}, ValueError, "timeout must be"),
        (print, [], {"num_devices": 1, "timeout": "5"}, ValueError, "timeout must be"),
        (print, [], {"num_devices": 1, "timeout": True}, ValueError, "timeout must be"),
        (print, [], {"num_devices": 1, "timeout": -1}, ValueError, "timeout must be"),
        (print, [], {"num_devices": 1, "timeout": float("nan")}, ValueError, "not nan"),
        (print, [], {"num_devices": 1, "timeout": -float("inf")}, ValueError, "not -inf"),
        (print, [], {"num_devices": 1, "seconds": 5}, TypeError, "keyword argument 'seconds'"),
        (print, [], {}, TypeError, "keyword-only argument: 'num_devices'"),
        (print, [1, no_pickle()], {"num_devices": 1}, TypeError, "argument 2 of print, a gen"),
        (no_pickle().__next__, [], {"num_devices": 1}, TypeError, "the function __next__ cannot"),
    ],
)
@pytest.mark.usefixtures("leaves_nothing_behind")
def test_bad_input_is_refused_before_anything_starts(
    fn: Any, arguments: list[Any], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        launch(fn, *arguments, **options)
