"""A run that is killed, again and again, ends with the same bits as one that was left alone.

`make test-slow` kills it three times, `make test-faults` twenty times.
"""

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.leftovers import runs
from tests.support.runs import Run, figures, same_bits

EVERY = 5  # steps between two checkpoints
# 5 epochs of 21 steps, the last of each with 8 examples; momentum and cosine are states to lose
OPTIONS = [
    *("--num-train", 648, "--num-test", 101, "--batch-size", 32, "--epochs", 5),
    *("--momentum", 0.9, "--schedule", "cosine", "--lr", 0.02),
    *("--checkpoint-every", EVERY, "--events-every", 1),
]
STEPS = 5 * 21
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Start = Callable[..., Run]
LeftAlone = Callable[[list[str] | None], Run]


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
def left_alone(tmp_path_factory: pytest.TempPathFactory) -> LeftAlone:
    """The same run without any fault: with torchrun's options, or as one process."""
    runs: dict[bool, Run] = {}

    def left_alone(torchrun: list[str] | None) -> Run:
        key = torchrun is None
        if key not in runs:
            runs[key] = Run(tmp_path_factory.mktemp("left-alone"), *OPTIONS, torchrun=torchrun)
            assert runs[key].end() == 0, runs[key].errors()
        return runs[key]

    return left_alone


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.faults)])
def test_workers_killed_at_random_steps_lose_nothing(
    kills: int, left_alone: LeftAlone, start: Start
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    steps = sorted(chance.sample(range(EVERY + 1, STEPS - 20), kills))
    print(f"seed {seed}: kills due at steps {steps}")
    undisturbed = left_alone(["--nproc-per-node=2"])
    run = start("killed", torchrun=["--nproc-per-node=2", f"--max-restarts={kills}"])
    seen: set[psutil.Process] = set()
    for number, due in enumerate(steps, start=1):
        workers = {e["rank"]: e["pid"] for e in (run.wait_for("start"), run.wait_for("start"))}
        step = run.wait_for("step", due)["step"]
        victim = chance.choice([0, 1])
        seen.update(run.descendants())
        os.kill(workers[victim], signal.SIGKILL)
        run.read_events()
        last = max(e["step"] for e in run.events if e["event"] == "step")
        saved = max(e["step"] for e in run.events if e["event"] == "checkpoint")
        print(f"kill {number} of {kills}: rank {victim}, step {step} logged, checkpoint {saved}")
        assert EVERY <= saved <= last + 1 and last < STEPS
    assert run.end() == 0, run.errors()
    resumed = [e for e in run.events if e["event"] == "resume"]
    assert len(resumed) == kills
    assert same_bits(run.weights(), undisturbed.weights())
    # An epoch killed between its line and its checkpoint is reported twice, in the same words.
    assert sorted(set(figures(run.epochs))) == figures(undisturbed.epochs)
    assert not [process for process in seen if runs(process)]
    assert sorted(os.listdir(run.checkpoints)) == sorted(os.listdir(undisturbed.checkpoints))
    torchs_own = ("torchelastic_", "torchinductor_")  # these stay even if all goes well
    assert not [name for name in os.listdir(run.temporary) if not name.startswith(torchs_own)]


@pytest.mark.parametrize(
    ("number", "storm", "torchrun"),
    [
        (signal.SIGTERM, True, None),
        (signal.SIGINT, False, None),
        (signal.SIGTERM, False, ["--nproc-per-node=2"]),
    ],
    ids=["a storm of SIGTERM", "Ctrl-C", "SIGTERM to torchrun"],
)
def test_a_run_asked_to_stop_saves_and_goes_on_later(
    number: signal.Signals,
    storm: bool,
    torchrun: list[str] | None,
    left_alone: LeftAlone,
    start: Start,
) -> None:
    run = start("stopped", torchrun=torchrun)
    run.wait_for("step", 23)
    run.process.send_signal(number)
    while storm and run.process.poll() is None:  # up to the last moment of the process
        run.process.send_signal(number)
    code = run.end()
    assert code == (75 if torchrun is None else 1)  # torchrun has codes of its own
    [stop] = [event for event in run.events if event["event"] == "stop"]
    assert f"Stopped after step {stop['step']}; the same command goes on" in run.errors()
    assert [e["step"] for e in run.events if e["event"] == "checkpoint"][-1] == stop["step"]
    again = start("stopped", torchrun=torchrun)
    assert again.end() == 0, again.errors()
    assert again.events[-1]["event"] == "end"
    undisturbed = left_alone(torchrun)
    assert figures(run.epochs + again.epochs) == figures(undisturbed.epochs)
    assert same_bits(again.weights(), undisturbed.weights())


def test_without_a_folder_a_stop_says_that_nothing_was_saved(tmp_path: Path) -> None:
    run = Run(tmp_path, *OPTIONS[:-4], "--events-every", 1, checkpoints=False)
    run.wait_for("step", 3)
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 75
    assert "nothing was saved, because there is no --checkpoint-dir" in run.errors()
