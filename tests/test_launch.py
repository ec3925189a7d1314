"""`launch` returns every rank's result, names the rank that failed, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
from jupyter_client.manager import start_new_kernel

from d2l_mgpu import RankError, get_devices, launch, rank_device

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.timeout(300)


def state_of_this_process() -> dict[str, Any]:
    this = psutil.Process()
    return {
        "children": this.children(recursive=True),
        "ports": [c.laddr for c in this.net_connections() if c.status == psutil.CONN_LISTEN],
        "threads": threading.enumerate(),
        "files": os.listdir(tempfile.gettempdir()),
        "signal handlers": {s: signal.getsignal(s) for s in signal.valid_signals()},
        "environment": {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
        "main": {
            name: vars(sys.modules["__main__"]).get(name) for name in ("__file__", "__spec__")
        },
    }


@pytest.fixture
def leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compare this process before and after the test, with a temporary folder of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = state_of_this_process()
    yield
    assert state_of_this_process() == before


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


# Results and output.


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
def test_the_rank_that_failed_is_named_in_20_of_20_runs_while_the_other_waits() -> None:
    for _ in range(20):
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


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_a_timeout_names_the_ranks_that_still_run() -> None:
    with pytest.raises(TimeoutError, match=r"2 of 2 ranks .* after 10 seconds: 0, 1; "):
        launch(time.sleep, 600, num_devices=2, timeout=10)  # starting takes some of it


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_a_result_that_cannot_be_sent_back_is_named() -> None:
    with pytest.raises(RankError, match="the result of rank 0, a generator, cannot be sent back"):
        launch(no_pickle, num_devices=1)


@pytest.mark.parametrize(
    ("fn", "arguments", "options", "error", "message"),
    [
        (print, [], {"num_devices": 0}, ValueError, "num_devices must be an integer"),
        (print, [], {"num_devices": -1}, ValueError, "num_devices must be an integer"),
        (print, [], {"num_devices": 2.0}, ValueError, "num_devices must be an integer"),
        (print, [], {"num_devices": "2"}, ValueError, "num_devices must be an integer"),
        (print, [], {"num_devices": True}, ValueError, "num_devices must be an integer"),
        (3, [], {"num_devices": 1}, TypeError, "launch runs a function"),
        (None, [], {"num_devices": 1}, TypeError, "launch runs a function"),
        (print, [], {"num_devices": 1, "timeout": 0}, ValueError, "timeout must be"),
        (print, [], {"num_devices": 1, "timeout": "5"}, ValueError, "timeout must be"),
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


# Scripts.

SCRIPT = """
import torch.distributed as dist
from d2l_mgpu import launch

class Answer:
    def __init__(self, rank):
        self.rank = rank

def answer(kind):
    return kind(dist.get_rank())

print("once")
print([type(a) is Answer and a.rank for a in launch(answer, Answer, num_devices=2)])
"""


@pytest.mark.parametrize("stdin", [False, True], ids=["file", "standard input"])
def test_a_script_needs_no_main_guard(stdin: bool, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-" if stdin else str(script)],
        input=SCRIPT if stdin else None,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("once\n[0, 1]\n", "")


WAITING_SCRIPT = f"""
import os, signal, sys, tempfile, time
from pathlib import Path
import torch.distributed as dist
sys.path += {[str(ROOT), str(ROOT / "tests")]!r}
from d2l_mgpu import launch
from test_launch import state_of_this_process

def wait(folder):
    Path(folder, str(dist.get_rank())).touch()
    time.sleep(600)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start us deaf to Ctrl-C
before = state_of_this_process()
try:
    launch(wait, sys.argv[1], num_devices=2)
except KeyboardInterrupt:
    print("interrupted, as before:", state_of_this_process() == before)
"""


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # the timeout of the test ends it
        time.sleep(0.05)


def runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("how", ["interrupt", "interrupt its group", "kill"])
def test_an_interrupted_or_killed_script_leaves_no_process(how: str, tmp_path: Path) -> None:
    started, temporary = tmp_path / "started", tmp_path / "tmp"
    started.mkdir()
    temporary.mkdir()
    script = subprocess.Popen(
        [sys.executable, "-c", WAITING_SCRIPT, str(started)],
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: len(os.listdir(started)) == 2 or script.poll() is not None)
        children = psutil.Process(script.pid).children(recursive=True)
        assert len(children) >= 2
        if how == "kill":
            script.kill()
        elif how == "interrupt":
            script.send_signal(signal.SIGINT)
        else:
            os.killpg(script.pid, signal.SIGINT)
        out, err = script.communicate()
        wait_until(lambda: not any(runs(child) for child in children))
        if how != "kill":  # nobody can tidy up who was killed
            assert (out, err) == ("interrupted, as before: True\n", "")
            assert os.listdir(temporary) == []
    finally:
        script.kill()


# Notebooks.

CELLS = """
import time
from pathlib import Path
import torch.distributed as dist
from d2l_mgpu import RankError, launch

class Answer:
    def __init__(self, rank):
        self.rank = rank

class Lost(Exception):
    pass

def answer():
    print("hello")
    return Answer(dist.get_rank())

def lose():
    if dist.get_rank() == 1:
        raise Lost("in a cell")
    dist.barrier()

def wait(folder):
    Path(folder, str(dist.get_rank())).touch()
    time.sleep(600)
# next cell
print([type(a) is Answer and a.rank for a in launch(answer, num_devices=2)])
# next cell
try:
    launch(lose, num_devices=2)
except RankError as error:
    print(error.rank, type(error.__cause__) is Lost, 'raise Lost("in a cell")' in error.traceback)
# next cell
launch(wait, FOLDER, num_devices=2)
"""


def test_a_notebook_can_launch_what_its_cells_define_and_be_interrupted(tmp_path: Path) -> None:
    printed: list[str] = []

    def show(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    definitions, results, error, interrupted = CELLS.replace("FOLDER", repr(str(tmp_path))).split(
        "# next cell\n"
    )
    kernel, client = start_new_kernel(kernel_name="python3", cwd=str(ROOT))
    try:
        for cell in (definitions, results, error):
            reply = client.execute_interactive(cell, output_hook=show)
            assert reply["content"]["status"] == "ok", reply["content"]
        assert "".join(printed) == "[rank 0] hello\n[rank 1] hello\n[0, 1]\n1 True True\n"

        def interrupt() -> None:
            wait_until(lambda: len(os.listdir(tmp_path)) == 2)
            kernel.interrupt_kernel()

        threading.Thread(target=interrupt, daemon=True).start()
        reply = client.execute_interactive(interrupted, output_hook=show)
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        printed.clear()
        client.execute_interactive(
            "import psutil; print(psutil.Process().children(recursive=True))", output_hook=show
        )
        assert printed == ["[]\n"]
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
