"""However a launch ends, it leaves nothing behind: no process, port, file or memory."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from pathlib import Path

import psutil
import pytest
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.api import MultiprocessContext
from torch.multiprocessing import ProcessExitedException, start_processes

from d2l_mgpu import RankError, launch
from d2l_mgpu.processes import agent
from d2l_mgpu.processes.agent import AgentThread
from d2l_mgpu.processes.worker import work
from tests.support import ROOT
from tests.support.leftovers import runs, wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("each_start")]


def start_a_program(folder: Path) -> None:
    """Start a program and leave its process id in `folder`, in a file named by the rank."""
    program = subprocess.Popen(["sleep", "600"])
    Path(folder, f"{dist.get_rank()}.part").write_text(str(program.pid))
    Path(folder, f"{dist.get_rank()}.part").rename(Path(folder, f"{dist.get_rank()}.program"))


def programs(folder: Path) -> list[int]:
    """Return the process ids of what ranks have started."""
    return [int(file.read_text()) for file in folder.glob("*.program")]


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and runs(psutil.Process(pid))


def start_a_program_and(end: str, folder: Path) -> None:
    """Rank 0 comes to the `end`; unless that is to return, rank 1 has to be killed."""
    start_a_program(folder)
    dist.barrier()
    if end != "return" and dist.get_rank() == 1:
        time.sleep(600)
    if end == "raise":
        raise LookupError
    if end == "die":
        os._exit(3)


@pytest.mark.parametrize("end", ["return", "raise", "die"])
@pytest.mark.usefixtures("leaves_nothing_behind")
def test_what_a_rank_has_started_ends_with_it(end: str, tmp_path: Path) -> None:
    try:
        launch(start_a_program_and, end, tmp_path, num_devices=2)
    except RankError:
        assert end != "return"
    else:
        assert end == "return"
    assert len(programs(tmp_path)) == 2
    wait_until(lambda: not any(lives(pid) for pid in programs(tmp_path)))


def start_a_program_and_wait(folder: Path) -> None:
    start_a_program(folder)
    time.sleep(600)


def launch_while_rank_1_raises(folder: Path) -> None:
    if dist.get_rank() == 0:
        launch(start_a_program_and_wait, folder, num_devices=1)
    wait_until(lambda: len(programs(folder)) == 1)
    raise LookupError


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_what_a_rank_has_launched_ends_with_it(tmp_path: Path) -> None:
    with pytest.raises(RankError, match=r"^rank 1 failed: LookupError"):
        launch(launch_while_rank_1_raises, tmp_path, num_devices=2)
    assert len(programs(tmp_path)) == 1
    wait_until(lambda: not any(lives(pid) for pid in programs(tmp_path)))
    wait_until(lambda: os.listdir(tempfile.gettempdir()) == [])


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_a_process_that_another_thread_starts_meanwhile_is_left_alone(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))

    def start_meanwhile() -> None:
        wait_until(lambda: (tmp_path / "0.program").exists())
        process.start()
        (tmp_path / "go").touch()

    def wait_and_raise() -> None:
        start_a_program(tmp_path)
        wait_until(lambda: (tmp_path / "go").exists())
        raise LookupError

    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(start_meanwhile)
        with pytest.raises(RankError, match="LookupError"):
            launch(wait_and_raise, num_devices=1)
        starting.result()
    try:
        assert process.is_alive()
    finally:
        process.kill()
        process.join()
        process.close()
        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]  # `process` used it


def semaphores(launches: list[str]) -> list[Path]:
    """Those that these launches, named like their folders, have on Linux."""
    return [path for name in launches for path in Path("/dev/shm").glob(f"sem.{name}-*")]


WAITING_SCRIPT = f"""
import ctypes, signal, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from d2l_mgpu import launch
from tests.package.processes.test_launch_ends import start_a_program
from tests.support.leftovers import state_of_this_process

def wait(folder):
    start_a_program(folder)
    ctypes.PyDLL(None).sleep(600)  # with Python's lock: nothing written in Python can end it

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start us deaf to Ctrl-C
launch(len, "any", num_devices=1)  # keeps its server
before = state_of_this_process()
try:
    launch(wait, sys.argv[1], num_devices=2)
except KeyboardInterrupt:
    print("interrupted, as before:", state_of_this_process() == before)
"""


@pytest.mark.parametrize(
    "how", ["interrupt", "interrupt twice", "interrupt its group", "kill", "kill its group"]
)
def test_an_interrupted_or_killed_script_leaves_nothing(how: str, tmp_path: Path) -> None:
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
        wait_until(lambda: len(programs(started)) == 2 or script.poll() is not None)
        children = psutil.Process(script.pid).children(recursive=True)
        assert set(programs(started)) < {child.pid for child in children}
        launches = [path.name for path in temporary.glob("d2l-mgpu-*")]
        assert sys.platform != "linux" or semaphores(launches)
        if how == "kill":
            script.kill()
        elif how == "kill its group":  # as a notebook's "Restart kernel" does
            os.killpg(script.pid, signal.SIGKILL)
        elif how == "interrupt its group":
            os.killpg(script.pid, signal.SIGINT)
        else:
            script.send_signal(signal.SIGINT)
        if how == "interrupt twice":
            wait_until(lambda: not all(runs(child) for child in children))
            script.send_signal(signal.SIGINT)
        out, err = script.communicate()
        wait_until(lambda: not any(runs(child) for child in children))
        wait_until(lambda: not semaphores(launches))
        if how.startswith("kill"):
            wait_until(lambda: os.listdir(temporary) == [])
        else:
            assert (out, err) == ("interrupted, as before: True\n", "")
            assert os.listdir(temporary) == []  # nor is the server, when the script has ended
    finally:
        script.kill()


@pytest.mark.parametrize("farewell", [5.0, 0.2], ids=["patient", "in haste"])
@pytest.mark.usefixtures("leaves_nothing_behind")
def test_an_interrupt_when_all_ranks_have_just_returned_ends_the_launch(
    farewell: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent is about to tell its workers that they may end; one that is killed then does not
    hear it, and the agent would wait for it for ever."""

    def is_done_after_a_second(self: MultiprocessContext) -> bool:
        if done := len(self._return_values) == self.nprocs:
            time.sleep(1)
        return done

    def interrupted(self: AgentThread, timeout: float | None) -> None:
        wait_until(self.all_returned)
        raise KeyboardInterrupt

    monkeypatch.setattr(agent, "_FAREWELL", farewell)
    monkeypatch.setattr(MultiprocessContext, "_is_done", is_done_after_a_second)
    monkeypatch.setattr(AgentThread, "watch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch(len, "any", num_devices=2)


def test_a_rank_whose_folder_is_gone_because_its_caller_is_ends_and_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "0")
    started = start_processes(
        lambda local_rank: work("/nowhere", [], 1, {}), start_method="fork", join=False
    )
    with pytest.raises(ProcessExitedException):  # and not ProcessRaisedException, by a file
        started.join()


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("leaves_nothing_behind")
def test_after_a_few_launches_50_more_change_nothing() -> None:
    memory = 0
    for i in range(60):
        launch(len, "any", num_devices=1)
        if i == 9:
            gc.collect()
            memory = psutil.Process().memory_info().rss
    gc.collect()
    assert psutil.Process().memory_info().rss < memory + 5e6
