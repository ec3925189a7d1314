"""`launch` works wherever it is called: scripts, notebooks, pytest, pools of processes."""

import os
import subprocess
import sys
import threading
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from d2l_mgpu import launch
from tests.support import ROOT
from tests.support.leftovers import wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("each_start")]

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


LIVE_SCRIPT = """
import sys, time
from pathlib import Path
from d2l_mgpu import launch

def print_and_wait(text, seen):
    print(text, end="", flush=True)
    while not Path(seen).exists():
        time.sleep(0.05)

k = int(sys.argv[1])
launch(print_and_wait, "50%\\n" * (k - 1) + "90%", sys.argv[2], num_devices=k)
"""


@pytest.mark.parametrize(
    ("num_devices", "live", "afterwards"),
    [(1, "90%", ""), (2, "[rank 0] 50%\n", "[rank 0] 90%\n[rank 1] 50%\n[rank 1] 90%\n")],
)
def test_what_rank_0_prints_appears_at_once(
    num_devices: int, live: str, afterwards: str, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    script = subprocess.Popen(
        [sys.executable, "-c", LIVE_SCRIPT, str(num_devices), str(seen)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert script.stdout is not None
        assert script.stdout.read(len(live)) == live
        seen.touch()
        assert script.communicate() == (afterwards, None)
    finally:
        script.kill()


# Other programs that run functions.

TESTS = """
import torch.distributed as dist
from d2l_mgpu import launch

class Answer:
    def __init__(self, rank):
        self.rank = rank

def answer():
    print("hello")
    return Answer(dist.get_rank())

def test_results():
    assert [type(a) is Answer and a.rank for a in launch(answer, num_devices=2)] == [0, 1]

def test_output(capsys):
    launch(answer, num_devices=1)
    assert capsys.readouterr() == ("hello\\n", "")
"""


@pytest.mark.parametrize("capture", ["fd", "sys", "no"])
def test_a_test_can_launch_what_its_file_defines(capture: str, tmp_path: Path) -> None:
    (tmp_path / "test_answer.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"--capture={capture}", "test_answer.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert "2 passed" in done.stdout
    assert ("[rank 0] hello\n[rank 1] hello\n" in done.stdout) == (capture == "no")
    assert done.stderr == ""


def test_where_no_process_may_be_started_launch_says_so() -> None:
    with (  # the processes of a pool are daemons, as are those of a DataLoader
        get_context("fork").Pool(1) as pool,
        pytest.raises(RuntimeError, match="could not be started: daemonic processes are not"),
    ):
        pool.apply(launch, (len, [1]), {"num_devices": 1})


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
        client.execute_interactive(results, output_hook=show)  # the kernel is as good as new
        assert "".join(printed) == "[rank 0] hello\n[rank 1] hello\n[0, 1]\n"
        printed.clear()
        client.execute_interactive(
            "import psutil; from d2l_mgpu.processes.fork_server import SERVER\n"
            "print({p.pid for p in psutil.Process().children(recursive=True)} - {SERVER.pid})",
            output_hook=show,
        )
        assert printed == ["set()\n"]
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
