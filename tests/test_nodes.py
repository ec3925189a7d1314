"""Training on several machines: equal to one, and what becomes of it when one of them is lost.

The machines are network namespaces (tests/nodes.py), each with its own torchrun; they meet over
TCP and see one folder for the checkpoints. Nothing here asserts how long something takes: what
must end is waited for, with a bound far beyond what it needs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from d2l_mgpu.checkpoint import load_weights
from tests.nodes import Node, Run, missing, network, wait_until

BOUND = 120  # seconds in which every run must have ended
RECIPE = ["-m", "d2l_mgpu.train", "--source", "generated", "--num-train", "320"]
RECIPE += ["--num-test", "200", "--batch-size", "16", "--lr", "0.02", "--no-progress"]
RECIPE += ["--checkpoint-every", "20", "--events-every", "1"]  # 20 steps are an epoch
SHORT, LONG = 2, 12  # epochs: the long one is long enough to be disturbed
# How soon torchrun takes a silent node for dead (1 s x 5), and how long it then waits for others.
SOON = "keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=5,close_timeout=5"


class Training:
    """A training on some nodes: a torchrun on each, and what all of them leave in `folder`."""

    def __init__(self, nodes: list[Node], folder: Path, epochs: int, *torchrun: str) -> None:
        self.nodes, self.folder = nodes, folder
        self.torchrun = ["--rdzv-backend=c10d", f"--rdzv-endpoint={nodes[0].name}:29400"]
        self.torchrun += ["--rdzv-id=test", f"--rdzv-conf={SOON}", *torchrun]
        self.options = options(folder, epochs)
        self.runs = [self.start(node) for node in nodes]

    def start(self, node: Node) -> Run:
        return node.start(
            *[sys.executable, "-m", "torch.distributed.run", *self.torchrun, *self.options],
            GLOO_SOCKET_IFNAME="eth0",
            OMP_NUM_THREADS="1",
            # Without it, a node that joins a job later is not told where the others meet:
            # torchrun 2.15 says so in the first round only.
            TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
        )

    def wait_for_step(self, step: int) -> None:
        """Wait until rank 1 has started and then `step` has been taken."""
        wait_until(lambda: any(e["rank"] == 1 for e in events(self.folder, "start")), *self.runs)
        wait_until(lambda: any(e["step"] >= step for e in events(self.folder, "step")), *self.runs)


def options(folder: Path, epochs: int) -> list[str]:
    """What follows `python` or `torchrun`, with checkpoints and events in `folder`."""
    keep = ["--checkpoint-dir", folder / "kept", "--events", folder / "events"]
    return [*RECIPE, "--epochs", str(epochs), *map(str, keep)]


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    file = folder / "events"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []  # the last may be cut short
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def train_here(folder: Path, epochs: int, *torchrun: str) -> None:
    """Train on this machine; in one process, unless `torchrun` says how many."""
    start = ["-m", "torch.distributed.run", "--standalone", *torchrun] if torchrun else []
    command = [sys.executable, *start, *options(folder, epochs)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=environment, check=True, timeout=BOUND)


def figures(folder: Path) -> list[tuple[float, float]]:
    """Loss and accuracy of each epoch; those of an epoch that was repeated: the last ones."""
    last = {event["epoch"]: event for event in events(folder, "epoch")}
    return [(last[epoch]["loss"], last[epoch]["accuracy"]) for epoch in sorted(last)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short training in one process."""
    folder = tmp_path_factory.mktemp("alone")
    train_here(folder, SHORT)
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a long training in two processes on one machine."""
    folder = tmp_path_factory.mktemp("undisturbed")
    train_here(folder, LONG, "--nproc-per-node=2")
    return folder


@pytest.fixture
def make_nodes() -> Iterator[Callable[[int], list[Node]]]:
    """Makes nodes, which are gone after the test."""
    if problem := missing():
        pytest.fail(problem) if os.environ.get("CI") else pytest.skip(problem)
    with ExitStack() as stack:
        yield lambda count: stack.enter_context(network(count))


Nodes = Callable[[int], list[Node]]


def assert_same_weights(folder: Path, expected: Path) -> None:
    """To the bit, which is more than different numbers of processes could promise."""
    weights, wanted = (load_weights(path / "kept") for path in (folder, expected))
    assert all(torch.equal(weights[name], wanted[name]) for name in wanted)
    assert figures(folder)[-1] == figures(expected)[-1]


@pytest.mark.parametrize("count", [2, 3])
def test_several_nodes_compute_what_one_process_computes(
    count: int, make_nodes: Nodes, tmp_path: Path, alone: Path
) -> None:
    training = Training(make_nodes(count), tmp_path, SHORT, f"--nnodes={count}")
    for run in training.runs:
        assert run.wait(BOUND) == 0, run
    assert {event["node"] for event in events(tmp_path, "start")} == {
        f"node {number} (node{number + 1})" for number in range(count)
    }
    weights, wanted = load_weights(tmp_path / "kept"), load_weights(alone / "kept")
    # One step changes weights by 4e-3; another order of the sums, by 2e-7.
    for name in wanted:
        torch.testing.assert_close(weights[name], wanted[name], rtol=0, atol=1e-5)
    for (loss, accuracy), (its_loss, its_accuracy) in zip(
        figures(tmp_path), figures(alone), strict=True
    ):
        assert loss == pytest.approx(its_loss, rel=1e-5)
        assert accuracy == its_accuracy


@pytest.mark.parametrize("silently", [False, True], ids=["known", "silent"])
def test_a_link_that_is_soon_mended_changes_nothing(
    silently: bool, make_nodes: Nodes, tmp_path: Path, undisturbed: Path
) -> None:
    training = Training(make_nodes(2), tmp_path, LONG, "--nnodes=2")
    training.wait_for_step(30)
    node = training.nodes[1]
    node.cut_silently() if silently else node.cut()
    at_cut = len(events(tmp_path, "step"))
    time.sleep(3)
    assert len(events(tmp_path, "step")) <= at_cut + 1  # it was cut indeed
    node.mend()
    for run in training.runs:
        assert run.wait(BOUND) == 0, run
    assert_same_weights(tmp_path, undisturbed)
    assert not events(tmp_path, "resume")


def test_a_link_cut_for_good_ends_the_run_on_both_sides(make_nodes: Nodes, tmp_path: Path) -> None:
    training = Training(make_nodes(2), tmp_path, LONG, "--nnodes=2")
    training.wait_for_step(30)
    training.nodes[1].cut_silently()
    for run, other in zip(training.runs, ("node2", "node1"), strict=True):
        assert run.wait(BOUND) != 0, run
        assert f"Rank {run.node.name[-1]}" and "lost the others" in run.stderr, run
    assert not events(tmp_path, "end")


@pytest.mark.parametrize("victim", [0, 1], ids=["rendezvous host", "other"])
def test_a_killed_node_ends_the_run_of_a_fixed_number(
    victim: int, make_nodes: Nodes, tmp_path: Path
) -> None:
    training = Training(make_nodes(2), tmp_path, LONG, "--nnodes=2")
    training.wait_for_step(30)
    training.nodes[victim].kill()
    survivor = training.runs[1 - victim]
    assert survivor.wait(BOUND) != 0, survivor
    print(survivor)


def test_the_surviving_node_goes_on_from_the_last_checkpoint(
    make_nodes: Nodes, tmp_path: Path
) -> None:
    training = Training(make_nodes(2), tmp_path / "run", LONG, "--nnodes=1:2", "--max-restarts=3")
    training.wait_for_step(30)
    training.nodes[1].kill()
    survivor = training.runs[0]
    wait_until(lambda: "lost the others" in survivor.stderr, survivor)
    shutil.copytree(tmp_path / "run" / "kept", tmp_path / "again" / "kept")  # before it goes on
    last_checkpoint = events(tmp_path / "run", "checkpoint")[-1]["step"]
    assert survivor.wait(BOUND) == 0, survivor
    [resume] = events(tmp_path / "run", "resume")
    assert (resume["step"], resume["saved_by"]) == (last_checkpoint, 2)
    assert events(tmp_path / "run", "epoch")[-1]["world_size"] == 1
    train_here(tmp_path / "again", LONG)
    assert_same_weights(tmp_path / "run", tmp_path / "again")


def test_a_killed_node_comes_back(make_nodes: Nodes, tmp_path: Path, undisturbed: Path) -> None:
    training = Training(make_nodes(2), tmp_path, LONG, "--nnodes=2", "--max-restarts=3")
    training.wait_for_step(30)
    training.nodes[1].kill()
    wait_until(lambda: "lost the others" in training.runs[0].stderr, training.runs[0])
    training.runs[1] = training.start(training.nodes[1])
    for run in training.runs:
        assert run.wait(BOUND) == 0, run
    assert len(events(tmp_path, "resume")) == 1
    assert_same_weights(tmp_path, undisturbed)
