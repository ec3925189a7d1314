"""clusters/slurm.sh under a real Slurm of two nodes: stopped, requeued, with the same bits.

The cluster runs on network namespaces (tests/support/slurm.py). The script is the one that readers
hand in, unchanged; only a mutation changes it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT, nodes, slurm
from tests.support.nodes import wait_until
from tests.support.runs import TRAIN, Run, Traces, figures, same_bits
from tests.support.slurm import BOUND, Slurm
from tests.support.training_on_nodes import LONG, RECIPE

pytestmark = pytest.mark.slow
SCRIPT = ROOT / "clusters" / "slurm.sh"
ENDED = "COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"
OPTIONS = [*TRAIN[2:], *RECIPE, *LONG]  # without -m d2l_mgpu.train, which the script says
REQUEUE, WARNING = 'scontrol requeue "$SLURM_JOB_ID"', "USR1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    if problem := nodes.missing() or slurm.missing():
        pytest.fail(problem) if os.environ.get("CI") else pytest.skip(problem)
    with nodes.network(2) as two:
        yield Slurm(two)


class Job(Traces):
    """A training that was handed in, with what it leaves in `folder`."""

    def __init__(self, cluster: Slurm, folder: Path, *options: str, script: Path = SCRIPT) -> None:
        super().__init__(folder)
        self.cluster, self.output = cluster, folder / "output"
        files = [f"--events={self.events_file}", f"--checkpoint-dir={self.checkpoints}"]
        self.number = cluster.submit(script, self.output, *OPTIONS, *files, *options)

    def wait_for_step(self, step: int) -> None:
        taken = lambda: any(event["step"] >= step for event in self.all("step"))  # noqa: E731
        wait_until(taken, *self.cluster.daemons, bound=BOUND)

    def time_is_up(self) -> None:
        """Send what Slurm sends before the end of the time: see `--signal` in the script."""
        self.cluster.ask("scancel", "--batch", f"--signal={WARNING}", self.number)

    def end(self) -> dict[str, str]:
        return self.cluster.wait_for(self.number, *ENDED)


def changed(folder: Path, old: str, new: str) -> Path:
    """A script in which `old` has become `new`."""
    text = SCRIPT.read_text()
    assert old in text
    script = folder / SCRIPT.name
    script.write_text(text.replace(old, new))
    return script


def test_a_requeued_job_ends_with_the_bits_of_an_undisturbed_run(
    cluster: Slurm, tmp_path: Path
) -> None:
    job = Job(cluster, tmp_path / "job")
    job.wait_for_step(30)
    job.time_is_up()
    ended = job.end()
    output = job.output.read_text()
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "1"), output
    assert {event["node"] for event in job.all("start")} == {"node 0 (node1)", "node 1 (node2)"}
    # Nothing was lost, and nothing was done twice.
    (stop,), (resume,) = job.all("stop"), job.all("resume")
    assert 30 <= stop["step"] == resume["step"] < job.all("end")[0]["step"]
    assert [event["step"] for event in job.all("step")] == list(range(1, 241))

    alone = Run(tmp_path / "alone", *RECIPE, *LONG, torchrun=["--nproc-per-node=2"])
    assert alone.end() == 0, alone.errors()
    assert same_bits(job.weights(), alone.weights())
    assert figures(job.all("epoch")) == figures(alone.epochs)


def test_without_its_requeue_line_the_script_does_not_finish(
    cluster: Slurm, tmp_path: Path
) -> None:
    script = changed(tmp_path, REQUEUE, "true")
    job = Job(cluster, tmp_path / "job", script=script)
    job.wait_for_step(30)
    job.time_is_up()
    ended = job.end()
    assert (ended["JobState"], ended["Restarts"]) == ("FAILED", "0"), job.output.read_text()
    assert job.all("stop") and not job.all("end")


@pytest.mark.parametrize("warning, state", [(WARNING, "CANCELLED"), ("TERM", "PENDING")])
def test_a_cancelled_job_stays_so_because_the_warning_is_not_sigterm(
    warning: str, state: str, cluster: Slurm, tmp_path: Path
) -> None:
    job = Job(cluster, tmp_path / "job", script=changed(tmp_path, WARNING, warning))
    job.wait_for_step(30)
    cluster.ask("scancel", job.number)
    ended = cluster.wait_for(job.number, "CANCELLED", "PENDING")
    cluster.ask("scancel", job.number)
    assert ended["JobState"] == state, job.output.read_text()


def test_a_job_that_fails_is_not_requeued(cluster: Slurm, tmp_path: Path) -> None:
    job = Job(cluster, tmp_path / "job", "--epochs=none")
    ended = job.end()
    assert (ended["JobState"], ended["Restarts"]) == ("FAILED", "0"), job.output.read_text()
    assert "'none' is not a whole number" in job.output.read_text()
