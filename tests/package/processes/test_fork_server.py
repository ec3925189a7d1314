"""The fork server: ranks come from it, are like new processes, and it ends with its caller."""

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist

from d2l_mgpu import RankError, launch
from d2l_mgpu.processes import fork_server
from d2l_mgpu.processes.fork_server import SERVER, start_method
from tests.support import ROOT
from tests.support.leftovers import runs, wait_until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="there is a fork server on Linux only"),
]


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A temporary folder whose name, unlike that of `tmp_path`, has room for that of a socket."""
    with tempfile.TemporaryDirectory(prefix="d2l-") as folder:
        yield Path(folder)


def parents(num_devices: int = 1) -> set[int]:
    """Return the parents of ranks that are launched now."""
    return set(launch(os.getppid, num_devices=num_devices))


# Ranks are copies of it.


def test_all_ranks_of_all_launches_come_from_one_process_that_imported_torch_once() -> None:
    assert parents(2) == parents(1) == {SERVER.pid}
    assert [child.pid for child in psutil.Process().children()] == [SERVER.pid]


def test_what_a_rank_launches_comes_from_the_same_server() -> None:
    assert launch(parents, 2, num_devices=2) == [{SERVER.pid}, {SERVER.pid}]


def test_a_rank_computes_with_as_many_threads_as_it_asks_for() -> None:
    def on_threads(num_threads: int) -> tuple[int, float]:
        torch.set_num_threads(num_threads)
        ones = torch.ones(500, 500, dtype=torch.float64)
        by_torch, by_numpy = ones @ ones, ones.numpy() @ ones.numpy()
        return torch.get_num_threads(), (by_torch - by_numpy).sum().item()

    for num_threads in (1, 2):
        assert launch(on_threads, num_threads, num_devices=2) == [(num_threads, 0.0)] * 2


def test_ranks_draw_different_random_numbers_also_in_the_next_launch() -> None:
    def draw() -> list[float]:
        return [random.random(), np.random.rand(), torch.rand(1).item()]

    drawn = launch(draw, num_devices=2) + launch(draw, num_devices=2)
    for numbers in zip(*drawn, strict=True):
        assert len(set(numbers)) == 4


# They are like new processes.


def test_changes_since_the_server_was_started_reach_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHANGED", "before")
    monkeypatch.setenv("REMOVED", "before")
    SERVER.stop()
    before = parents()
    monkeypatch.setenv("CHANGED", "now")
    monkeypatch.setenv("ADDED", "now")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("REMOVED")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "written_now.py").write_text("answer = 42")

    def here() -> list[str | None]:
        from written_now import answer  # type: ignore[import-not-found]

        names = ("CHANGED", "ADDED", "REMOVED")
        return [*map(os.environ.get, names), os.getcwd(), tempfile.gettempdir(), str(answer)]

    here_now = ["now", "now", None, str(tmp_path), str(tmp_path), "42"]
    assert launch(here, num_devices=2) == [here_now, here_now]
    assert parents() == before


def test_a_rank_has_the_rank_that_the_agent_gave_it_whatever_the_caller_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "7")
    assert launch(lambda: os.environ["RANK"], num_devices=2) == ["0", "1"]


@pytest.mark.slow
def test_what_only_a_new_process_takes_over_starts_a_new_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = parents()
    monkeypatch.setenv("TORCH_LOGS", "-dynamo")
    after = parents()
    assert after != before
    umask = os.umask(0o027)
    try:
        assert launch(lambda: os.umask(0), num_devices=1) == [0o027]
        assert parents() != after
    finally:
        os.umask(umask)


# It is started again.


@pytest.mark.slow
def test_a_server_that_was_killed_or_whose_socket_is_gone_is_started_again() -> None:
    [before] = parents()
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: not runs(psutil.Process(before)))
    [after] = parents()
    os.unlink(SERVER._forkserver_address)
    assert len({before, after} | parents()) == 3
    assert not psutil.pid_exists(before) and not psutil.pid_exists(after)


@pytest.mark.slow
def test_a_server_that_is_killed_during_a_launch_takes_the_ranks_along() -> None:
    def kill_it() -> None:
        dist.barrier()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)

    with pytest.raises(RankError, match=r"^rank \d died before its function returned"):
        launch(kill_it, num_devices=2)
    assert parents() == {SERVER.pid}


@pytest.mark.slow
def test_when_a_file_of_the_package_has_changed_the_server_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "d2l_mgpu"
    shutil.copytree(ROOT / "d2l_mgpu", package)
    monkeypatch.setattr(fork_server, "__file__", str(package / "processes" / "fork_server.py"))
    before = parents()
    assert parents() == before
    os.utime(package / "models.py", (0, 0))
    changed = parents()
    assert changed != before
    (package / "exercises" / "new.py").touch()
    assert parents() != changed


# It is done without.


def test_where_it_is_not_wanted_or_not_possible_processes_start_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    SERVER.stop()
    with monkeypatch.context() as asked:
        asked.setenv("D2L_MGPU_START", "spawn")
        assert start_method() == "spawn"
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "platform", "darwin")
        assert start_method() == "spawn"
    with monkeypatch.context() as daemon:
        daemon.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
        assert start_method() == "spawn"
    with monkeypatch.context() as full:
        full.setattr(tempfile, "tempdir", "/proc")
        assert start_method() == "spawn"
    assert SERVER.pid == 0


def test_a_server_that_cannot_import_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SERVER.stop()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(fork_server, "_COMMAND", "import there_is_none_of_this_name  # {} {} {} {}")
    assert start_method() == "spawn"
    assert SERVER.pid == 0
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_where_temporary_files_have_long_names_its_socket_has_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("deep" * 30)
    deep.mkdir()
    SERVER.stop()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert parents() == {SERVER.pid}
    assert os.listdir(deep) == []


# Others are left alone.


def print_and_tell_parent() -> None:
    print("heard")
    sys.exit(os.getppid() == SERVER.pid)


@pytest.mark.slow
def test_the_fork_server_of_others_is_another_one(capfd: pytest.CaptureFixture[str]) -> None:
    foreign = multiprocessing.get_context("forkserver").Process(target=print_and_tell_parent)
    before = parents()
    try:
        foreign.start()
        foreign.join()
        assert foreign.exitcode == 0 and capfd.readouterr().out == "heard\n"
        assert parents() == before
    finally:
        foreign.close()
        forkserver._forkserver._stop()  # type: ignore[attr-defined]
        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]


def test_a_forked_child_does_not_use_the_server_of_its_parent() -> None:
    [server] = parents()
    child = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(SERVER.pid))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert parents() == {server}


# It ends.

SCRIPT = f"""
import os, sys, time
sys.path.insert(0, {str(ROOT)!r})
from d2l_mgpu import launch
from d2l_mgpu.processes.fork_server import SERVER

launch(len, "any", num_devices=1)
if os.fork() == 0:  # a child that lives longer
    os.close(1)
    os.close(2)
    time.sleep(600)
print(SERVER.pid, flush=True)
sys.stdin.readline()
sys.exit(sys.stdin.readline())
"""


@pytest.mark.parametrize(
    "end", ["kill", *(pytest.param(end, marks=pytest.mark.slow) for end in ("return", "error"))]
)
def test_the_server_ends_with_its_script_and_leaves_no_file(end: str, short_path: Path) -> None:
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"TMPDIR": str(short_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    children: list[psutil.Process] = []
    try:
        assert script.stdout is not None
        server = psutil.Process(int(script.stdout.readline()))
        children = psutil.Process(script.pid).children()
        assert server in children and len(children) == 2
        assert os.getsid(server.pid) == server.pid  # no Ctrl-C of the terminal reaches it
        assert len(os.listdir(short_path)) == 1
        if end == "kill":
            script.kill()
            wait_until(lambda: not runs(server))
            wait_until(lambda: os.listdir(short_path) == [])
        else:
            script.communicate("go\n" + (end if end == "error" else ""))
            assert not runs(server) and os.listdir(short_path) == []
    finally:
        script.kill()
        for child in children:
            if runs(child):
                child.kill()


WAITING_SCRIPT = f"""
import ctypes, os, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from d2l_mgpu import launch

def wait(folder):
    Path(folder, f"{{os.getpid()}}").touch()
    ctypes.PyDLL(None).sleep(600)  # with Python's lock: nothing written in Python can end it

launch(wait, sys.argv[1], num_devices=2)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("each_start")
def test_ranks_end_with_their_caller_even_when_all_it_has_started_is_killed(
    tmp_path: Path,
) -> None:
    waiting, temporary = tmp_path / "waiting", tmp_path / "tmp"
    waiting.mkdir()
    temporary.mkdir()
    script = subprocess.Popen(
        [sys.executable, "-c", WAITING_SCRIPT, str(waiting)],
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    try:
        wait_until(lambda: len(os.listdir(waiting)) == 2 or script.poll() is not None)
        children = psutil.Process(script.pid).children(recursive=True)
        for child in children:
            if child.name() == "sh":  # it would end the ranks
                child.kill()
        script.kill()
        wait_until(lambda: not any(runs(child) for child in children))
    finally:
        script.kill()


@pytest.mark.slow
def test_a_script_that_is_killed_while_its_server_starts_leaves_no_file(short_path: Path) -> None:
    code = "from d2l_mgpu import launch; launch(len, 'any', num_devices=1)"
    environment = os.environ | {"TMPDIR": str(short_path), "PYTHONPATH": str(ROOT)}
    script = subprocess.Popen([sys.executable, "-c", code], env=environment)
    try:
        wait_until(lambda: bool(list(short_path.glob("d2l-mgpu-server-*/socket"))))
        script.kill()
        wait_until(lambda: os.listdir(short_path) == [])
    finally:
        script.kill()
