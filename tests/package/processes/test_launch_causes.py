"""What keeps a launch from its result is named: by the rank, by the machine, by the arguments."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings

from d2l_mgpu import RankError, launch
from d2l_mgpu.processes import agent
from tests.support import ROOT

pytestmark = pytest.mark.timeout(300)


def all_reduce_on_rank_1() -> None:
    if dist.get_rank() == 1:
        dist.all_reduce(torch.ones(3))


def all_reduce_two_dtypes() -> None:
    dist.all_reduce(torch.ones(3, dtype=(torch.float32, torch.float64)[dist.get_rank()]))


def all_reduce_two_shapes() -> None:
    dist.all_reduce(torch.ones(1 + 100_000 * dist.get_rank()))


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (all_reduce_on_rank_1, "^rank 1 failed in a collective, when rank 0 had already returned"),
        (all_reduce_two_dtypes, "^rank 0 died .* in a collective"),
        (all_reduce_two_shapes, "^rank 0 died .* in a collective"),
    ],
)
def test_a_collective_that_ranks_call_differently_is_named(fn, says):
    with pytest.raises(RankError, match=f"{says}.*every rank must call it, with a tensor of the s"):
        launch(fn, num_devices=2)


def test_a_rank_that_is_killed_after_it_has_returned_is_named_as_such():
    def kill_rank_0_which_has_returned() -> None:
        pids = [0, 0]
        dist.all_gather_object(pids, os.getpid())
        if dist.get_rank() == 1:
            time.sleep(1)
            os.kill(pids[0], signal.SIGKILL)
            time.sleep(600)

    with pytest.raises(RankError, match=r"^rank 0 died when others had not returned yet: .*SIGKIL"):
        launch(kill_rank_0_which_has_returned, num_devices=2)


class BadText(RuntimeError):
    def __str__(self) -> str:
        raise LookupError


class Exits(Exception):
    def __reduce__(self):
        return sys.exit, (3,)


def raise_in_a_circle() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def raise_without_text() -> None:
    raise BadText


def raise_what_exits() -> None:
    raise Exits


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (raise_in_a_circle, "failed: ValueError: first"),
        (raise_without_text, "failed: .*BadText"),
        (raise_what_exits, "failed: .*Exits"),
        (Exits, "returned what cannot be unpickled here .SystemExit: 3"),
    ],
)
def test_no_exception_and_no_result_hides_what_happened(fn, says):
    with pytest.raises(RankError, match=f"^rank 0 {says}"):
        launch(fn, num_devices=1)


def remove_the_folder_of_the_launch() -> None:
    for folder in Path(tempfile.gettempdir()).glob("d2l-mgpu-*"):
        if list(folder.glob("*.pid")):
            shutil.rmtree(folder)


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_a_folder_that_is_removed_while_ranks_run_ends_the_launch(monkeypatch):
    monkeypatch.setattr(agent, "_PATIENCE", 0.5)
    with pytest.raises(RuntimeError, match="was removed while they ran"):
        launch(remove_the_folder_of_the_launch, num_devices=1)


def close_all_files() -> None:
    os.closerange(0, 1000)


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_a_rank_that_closes_all_files_leaves_none_of_torch_s():
    launch(close_all_files, num_devices=1)


def test_what_a_new_python_says_is_passed_on(monkeypatch, capfd):
    monkeypatch.setenv("PYTHONHASHSEED", "odd")
    start = os.environ.get("D2L_MGPU_START")
    says = "a new Python process says: .*PYTHONHASHSEED must be" if start is None else "started"
    with pytest.raises(RuntimeError, match=says):
        launch(len, "any", num_devices=1)
    assert start or capfd.readouterr().err == ""


def test_more_devices_than_fit_are_refused_before_a_list_of_them_is_made():
    with pytest.raises(ValueError, match=r"num_devices is 1000000000, .* at most \d+; use"):
        launch(len, "any", num_devices=10**9)


def test_a_working_directory_that_was_removed_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(ValueError, match="The working directory was removed"):
        launch(len, "any", num_devices=1)


def test_ranks_compute_as_their_caller_does():
    def modes() -> tuple[torch.dtype, bool, str]:
        return (
            torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
        )

    before = modes()
    try:
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        torch.set_float32_matmul_precision("high")
        assert launch(modes, num_devices=2) == [(torch.float64, True, "high")] * 2
    finally:
        torch.set_default_dtype(before[0])
        torch.use_deterministic_algorithms(before[1])
        torch.set_float32_matmul_precision(before[2])
    assert launch(modes, num_devices=1) == [before]


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-1, 3),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.lists(st.integers(), max_size=2),
    st.just(len),
    st.just(torch.ones(2)),
    st.integers(0, 3).map(np.int64),
    st.just(object()),
    st.just(threading.Lock()),
    st.just(float),
)


@pytest.mark.slow
@pytest.mark.usefixtures("leaves_nothing_behind")
def test_whatever_it_is_given_launch_returns_or_says_what_is_wrong_with_it():
    seen = Counter()

    @settings(max_examples=300, deadline=None, database=None, derandomize=True)
    @given(
        fn=st.just(len) | ANYTHING,
        args=st.lists(ANYTHING, max_size=2),
        num_devices=st.integers(1, 2) | ANYTHING,
        timeout=st.just(30) | ANYTHING,
    )
    def call(fn, args, num_devices, timeout):
        try:
            results = launch(fn, *args, num_devices=num_devices, timeout=timeout)
        except RankError as error:
            assert 0 <= error.rank < num_devices and error.__cause__ is not None
            seen["failed"] += 1
        except TimeoutError:
            assert timeout < 30
        except (TypeError, ValueError) as error:
            assert re.search(r"num_devices|timeout|launch runs a function|argument \d", str(error))
            assert len(str(error).splitlines()) == 1
            seen["refused"] += 1
        else:
            assert len(results) == num_devices
            seen["returned"] += 1

    call()
    assert len(seen) == 3, seen


SCRIPT = """
from d2l_mgpu import launch

for fn, argument in ((len, "any"), (len, b"x" * 500_000), (bytes, 500_000)):
    try:
        launch(fn, argument, num_devices=1)
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "says"),
    [
        (
            ["--net", "{python}"],
            ["RankError rank 0 failed: OSError: ranks meet over the loopback interface lo"],
        ),
        (
            ["--mount", "sh", "-c", "mount -t tmpfs -o ro none /dev/shm; exec {python}"],
            [
                "RuntimeError The processes could not be started: [Errno 30] Read-only file system "
                "(they need room in {tmp} and, on Linux, in /dev/shm)."
            ],
        ),
        (
            ["--mount", "sh", "-c", "mount -t tmpfs -o size=200k none {tmp}; exec {python}"],
            [
                "OSError [Errno 28] the function and its arguments cannot be written to {tmp} (No",
                "OSError: [Errno 28] the result of rank 0 cannot be written to {tmp} (No space",
            ],
        ),
    ],
    ids=["loopback down", "read-only /dev/shm", "full disk"],
)
def test_what_the_machine_lacks_is_named(machine, says, tmp_path):
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("needs root and Linux, for a machine of its own that lacks something")
    (tmp_path / "script.py").write_text(SCRIPT)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    names = {"python": f"{sys.executable} {tmp_path}/script.py", "tmp": str(temporary)}
    command = [word.format(**names) for word in machine]
    if len(command) == 2:
        command[1:] = command[1].split()
    done = subprocess.run(
        ["unshare", *command],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
    )
    for sentence in says:
        assert sentence.format(**names) in done.stdout, done.stdout + done.stderr
