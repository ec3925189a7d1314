"""200 launches that are interrupted, time out, lose a rank or their caller, at random moments."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from itertools import chain
from pathlib import Path

import psutil
import pytest
import torch.distributed as dist

from d2l_mgpu import RankError, launch
from tests.support import ROOT
from tests.support.leftovers import runs, state_of_this_process, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LIMIT = 10.0  # seconds until a launch has ended, and all that belongs to it
MEETING = 0.5  # seconds that the ranks are together
EDGE = 0.1  # seconds at the beginning and at the end that get a third of the moments each


def meet(seconds: float) -> int:
    """What the ranks run."""
    dist.barrier()
    time.sleep(seconds)
    dist.barrier()
    return dist.get_rank()


def moments(count: int, whole: float) -> list[float]:
    """Random moments of a launch that takes `whole` seconds, many of them at its ends."""
    thirds = [(0.0, EDGE), (EDGE, whole), (whole - EDGE, whole + EDGE)]
    return [random.uniform(*thirds[i % 3]) for i in range(count)]


def disturb(kind: str) -> None:
    if kind == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if kind == "kill a rank":
        ranks = list(Path(tempfile.gettempdir()).glob("d2l-mgpu-*/?.pid"))
        with contextlib.suppress(OSError, ValueError, IndexError):  # none yet, or gone again
            os.kill(int(random.choice(ranks).read_text()), signal.SIGKILL)


def end_of_launch(kind: str, moment: float) -> str:
    """Launch, disturb it after `moment` seconds, and say how it ended."""
    timer = threading.Timer(moment, disturb, [kind])
    timeout = moment if kind == "time out" else 60
    try:
        try:
            timer.start()
            assert launch(meet, MEETING, num_devices=2, timeout=timeout) == [0, 1]
        finally:
            timer.join()
    except KeyboardInterrupt:
        return "KeyboardInterrupt"
    except TimeoutError:
        return "TimeoutError"
    except RankError as error:
        return f"RankError, {'SIGKILL' if 'SIGKILL' in error.problem else error.problem}"
    return "returned"


CAUSES = {
    "interrupt": "KeyboardInterrupt",
    "time out": "TimeoutError",
    "kill a rank": "RankError, SIGKILL",
}


@pytest.mark.parametrize("kind", CAUSES)
@pytest.mark.usefixtures("each_start", "leaves_nothing_behind")
def test_a_launch_that_is_disturbed_at_any_moment_ends_and_names_the_cause(kind, capsys):
    random.seed(0)
    start = time.monotonic()
    launch(meet, MEETING, num_devices=2)
    whole, before, ends = time.monotonic() - start, state_of_this_process(), []
    # All may come too late, if launches have become quicker: then go on until one does not.
    later = (random.uniform(0, whole) for _ in iter(lambda: CAUSES[kind] in ends, True))
    for moment in chain(moments(25, whole), later):
        start = time.monotonic()
        ends.append(end_of_launch(kind, max(moment, 1e-3)))
        assert time.monotonic() - start < moment + LIMIT, (kind, moment, ends[-1])
        assert ends[-1] in {CAUSES[kind], "returned"}, (moment, ends[-1])
        wait_until(lambda: state_of_this_process() == before)
    assert CAUSES[kind] in ends
    with capsys.disabled():
        print(f"\n{kind}:", {end: ends.count(end) for end in sorted(set(ends))})


CALLER = """
import json, sys
from d2l_mgpu import launch
from tests.package.processes.test_stress import meet

print(json.dumps("ready"), flush=True)
print(json.dumps(launch(meet, 0.1, num_devices=2)), flush=True)
"""


def kill_caller(temporary: Path, moment: float, whole_group: bool) -> float | None:
    """Start a caller, kill it `moment` seconds later, and wait until nothing of it is left; return
    the seconds that its launch took, if it was over by then."""
    temporary.mkdir()
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER],
        env=os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert caller.stdout is not None and json.loads(caller.stdout.readline()) == "ready"
    start, children, launches = time.monotonic(), set(), set()
    while time.monotonic() - start < moment and caller.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            children |= set(psutil.Process(caller.pid).children(recursive=True))
        launches |= {path.name for path in temporary.iterdir()}
        time.sleep(0.01)
    seconds = time.monotonic() - start
    if caller.poll() is None:
        if whole_group:
            os.killpg(caller.pid, signal.SIGKILL)
        else:
            caller.kill()
    returned = caller.communicate()[0]
    give_up = time.monotonic() + LIMIT
    while left := [
        *(child for child in children if runs(child)),
        *temporary.iterdir(),
        *(path for name in launches for path in Path("/dev/shm").glob(f"sem.{name}-*")),
    ]:
        assert time.monotonic() < give_up, (moment, left)
        time.sleep(0.05)
    return seconds if returned else None


@pytest.mark.usefixtures("each_start")
def test_a_caller_that_is_killed_at_any_moment_leaves_nothing(tmp_path, capsys):
    random.seed(0)
    whole = kill_caller(tmp_path / "whole", 60, False)
    assert whole is not None
    over = [
        kill_caller(tmp_path / str(i), max(0, moment), whole_group=bool(i % 2)) is not None
        for i, moment in enumerate(moments(25, whole))
    ]
    with capsys.disabled():
        print(f"\nkill the caller: {over.count(True)} returned, {over.count(False)} killed")
    assert not all(over)
