"""A run that is killed, again and again, ends with the same bits as one that was left alone.

`make test-faults` kills 20 times, `make test` a few times: D2L_MGPU_TEST_KILLS says how often.
"""

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.runs import Run, figures, same_bits

KILLS = int(os.environ.get("D2L_MGPU_TEST_KILLS", "3"))
EVERY = 5  # steps between two checkpoints
# 5 epochs of 21 steps, the last of each with 8 examples; momentum and cosine are states to lose
OPTIONS = "--num-train 648 --num-test 101 --batch-size 32 --epochs 5 --checkpoint-every 5".split()
OPTIONS += "--momentum 0.9 --schedule cosine --lr 0.02 --events-every 1".split()
STEPS = 5 * 21
pytestmark = pytest.mark.timeout(900)

Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts runs, and ends them at the end of the test if they have not."""
    runs: list[Run] = []

    def start(name: str, *options: object, torchrun: list[str] | None = None) -> Run:
        runs.append(Run(tmp_path / name, *OPTIONS, *options, torchrun=torchrun))
        return runs[-1]

    yield start
    for run in runs:
        run.stop()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("left") / "alone", *OPTIONS, torchrun=["--nproc-per-node=2"])
    assert run.end() == 0, run.errors()
    return run


def test_workers_killed_at_random_steps_lose_nothing(undisturbed: Run, start: Start) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    steps = sorted(chance.sample(range(EVERY + 1, STEPS - 5), KILLS))
    print(f"seed {seed}: kills due at steps {steps}")
    run = start("killed", torchrun=["--nproc-per-node=2", f"--max-restarts={KILLS}"])
    seen: set[psutil.Process] = set()
    for number, due in enumerate(steps, start=1):
        workers = {e["rank"]: e["pid"] for e in (run.wait_for("start"), run.wait_for("start"))}
        step = run.wait_for("step", due)["step"]
        victim = chance.choice([0, 1])
        seen.update(run.descendants())
        os.kill(workers[victim], signal.SIGKILL)
        run.new_events()
        last = max(e["step"] for e in run.events if e["event"] == "step")
        saved = max(e["step"] for e in run.events if e["event"] == "checkpoint")
        print(f"kill {number} of {KILLS}: rank {victim}, step {step} logged, checkpoint {saved}")
        assert EVERY <= saved <= last + 1 and last < STEPS
    assert run.end() == 0, run.errors()
    resumed = [e for e in run.events if e["event"] == "resume"]
    assert len(resumed) == KILLS
    assert same_bits(run.weights(), undisturbed.weights())
    # An epoch killed between its line and its checkpoint is reported twice, in the same words.
    assert sorted(set(figures(run.epochs))) == figures(undisturbed.epochs)
    assert not [p for p in seen if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert sorted(os.listdir(run.checkpoints)) == sorted(os.listdir(undisturbed.checkpoints))
    left = {name.rpartition("_")[0] for name in os.listdir(run.temporary)}
    assert left <= {"torchelastic", "torchinductor"}  # what torchrun leaves even if all is well
