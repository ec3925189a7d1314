"""Training on several machines: equal to one, and what becomes of it when one of them is lost.

The machines are network namespaces (tests/support/nodes.py), each with its own torchrun; they meet
over TCP and see one folder for the checkpoints. Nothing here asserts how long something takes:
what must end is waited for, with a bound far beyond what it needs.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from tests.support.nodes import Command, Node, missing, network, wait_until
from tests.support.runs import TRAIN, Run, Traces, figures, same_bits

BOUND = 120  # seconds in which every command must have ended
RECIPE = ["--num-train", "320", "--num-test", "200", "--batch-size", "16", "--lr", "0.02"]
RECIPE += ["--checkpoint-every", "20", "--events-every", "1"]  # 20 steps are an epoch
SHORT, LONG = ["--epochs", "2"], ["--epochs", "12"]  # LONG leaves time to disturb it
# How soon torchrun takes a silent node for dead (1 s x 5), and how long it then waits for others.
SOON = "keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=5,close_timeout=5"

MakeNodes = Callable[[int], list[Node]]
pytestmark = pytest.mark.slow


class Training(Traces):
    """One training on several nodes, with a torchrun on each."""

    def __init__(self, folder: Path, nodes: list[Node], *options: str, torchrun: list[str]) -> None:
        super().__init__(folder)
        self.nodes = nodes
        meet = ["--rdzv-backend=c10d", f"--rdzv-endpoint={nodes[0].name}:29400", "--rdzv-id=test"]
        self.words = ["-m", "torch.distributed.run", *meet, f"--rdzv-conf={SOON}", *torchrun]
        self.words += [*TRAIN, *RECIPE, *options, "--events", str(self.events_file)]
        self.words += ["--checkpoint-dir", str(self.checkpoints)]
        self.commands = [self.start(node) for node in nodes]

    def start(self, node: Node) -> Command:
        return node.start(
            *[sys.executable, *self.words],
            GLOO_SOCKET_IFNAME="eth0",
            OMP_NUM_THREADS="1",
            # Without it, a node that joins a job later is not told where the others meet:
            # torchrun 2.15 says so in the first round only.
            TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
        )

    def wait_for_step(self, step: int) -> None:
        """Wait until rank 1 has started and `step` has been taken."""
        wait_until(lambda: any(e["rank"] == 1 for e in self.all("start")), *self.commands)
        wait_until(lambda: any(e["step"] >= step for e in self.all("step")), *self.commands)

    def end(self) -> None:
        for command in self.commands:
            assert command.wait(BOUND) == 0, command


@pytest.fixture
def make_nodes() -> Iterator[MakeNodes]:
    """Makes nodes, which are gone after the test."""
    if problem := missing():
        pytest.fail(problem) if os.environ.get("CI") else pytest.skip(problem)
    with ExitStack() as stack:
        yield lambda count: stack.enter_context(network(count))


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("alone"), *RECIPE, *SHORT)
    assert run.end() == 0, run.errors()
    return run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A long training in two processes on one machine."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run = Run(folder, *RECIPE, *LONG, torchrun=["--nproc-per-node=2"])
    assert run.end() == 0, run.errors()
    return run


@pytest.mark.parametrize("count", [2, 3])
def test_several_nodes_compute_what_one_process_computes(
    count: int, make_nodes: MakeNodes, tmp_path: Path, one_process: Run
) -> None:
    training = Training(tmp_path, make_nodes(count), *SHORT, torchrun=[f"--nnodes={count}"])
    training.end()
    names = {event["node"] for event in training.all("start")}
    assert names == {f"node {number} (node{number + 1})" for number in range(count)}
    # One step changes weights by 4e-3; another order of the sums, by 2e-7.
    weights, wanted = training.weights(), one_process.weights()
    for name in wanted:
        torch.testing.assert_close(weights[name], wanted[name], rtol=0, atol=1e-5)
    pairs = zip(training.all("epoch"), one_process.epochs, strict=True)
    for ours, theirs in pairs:
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
        assert ours["accuracy"] == theirs["accuracy"]


def test_a_link_that_is_soon_mended_changes_nothing(
    make_nodes: MakeNodes, tmp_path: Path, undisturbed: Run
) -> None:
    training = Training(tmp_path, make_nodes(2), *LONG, torchrun=["--nnodes=2"])
    node = training.nodes[1]
    for step, cut in [(30, node.cut), (90, node.cut_silently)]:
        training.wait_for_step(step)
        cut()
        before = len(training.all("step"))
        time.sleep(3)
        assert len(training.all("step")) <= before + 2  # what was on its way arrived, no more
        node.mend()
    training.end()
    assert same_bits(training.weights(), undisturbed.weights())
    assert figures(training.all("epoch")) == figures(undisturbed.epochs)
    assert not training.all("resume")


def test_a_link_cut_for_good_ends_the_run_on_both_sides(
    make_nodes: MakeNodes, tmp_path: Path
) -> None:
    options = [*LONG, "--timeout", "5"]
    training = Training(tmp_path, make_nodes(2), *options, torchrun=["--nnodes=2"])
    training.wait_for_step(30)
    training.nodes[1].cut_silently()
    here, there = training.commands
    assert here.wait(BOUND) != 0 and there.wait(BOUND) != 0
    assert "no sign of life from node 1 (node2): rank 1." in here.stderr, here
    assert "no answer from the node of the rendezvous, node1." in there.stderr, there
    assert not training.all("end")


@pytest.mark.parametrize(
    ("count", "victim", "finding"),
    [
        (2, 0, "no answer from the node of the rendezvous, node1."),
        (3, 2, "no sign of life from node 2 (node3): rank 2."),
    ],
    ids=["host of the rendezvous", "another"],
)
def test_a_killed_node_ends_a_run_of_so_many_nodes(
    count: int, victim: int, finding: str, make_nodes: MakeNodes, tmp_path: Path
) -> None:
    training = Training(tmp_path, make_nodes(count), *LONG, torchrun=[f"--nnodes={count}"])
    training.wait_for_step(30)
    training.nodes[victim].kill()
    training.commands.pop(victim)
    for command in training.commands:
        assert command.wait(BOUND) != 0, command
        assert finding in command.stderr, command
    assert not training.all("end")


def test_a_surviving_node_goes_on_from_the_last_checkpoint(
    make_nodes: MakeNodes, tmp_path: Path
) -> None:
    torchrun = ["--nnodes=1:2", "--max-restarts=3"]
    training = Training(tmp_path / "run", make_nodes(2), *LONG, torchrun=torchrun)
    training.wait_for_step(30)
    training.nodes[1].kill()
    survivor, _ = training.commands
    wait_until(lambda: "lost the others" in survivor.stderr, survivor)
    left = tmp_path / "left"
    left.mkdir()
    shutil.copytree(training.checkpoints, left / training.checkpoints.name)
    last = training.all("checkpoint")[-1]["step"]
    assert survivor.wait(BOUND) == 0, survivor
    resume = training.all("resume")[-1]
    assert (resume["step"], resume["saved_by"]) == (last, 2)
    alone = Run(left, *RECIPE, *LONG)  # from the same checkpoint
    assert alone.end() == 0, alone.errors()
    assert same_bits(training.weights(), alone.weights())
    epochs = [event for event in training.all("epoch") if event["world_size"] == 1]
    assert figures(epochs) == figures(alone.epochs)


def test_a_killed_node_comes_back(make_nodes: MakeNodes, tmp_path: Path, undisturbed: Run) -> None:
    torchrun = ["--nnodes=2", "--max-restarts=3"]
    training = Training(tmp_path, make_nodes(2), *LONG, torchrun=torchrun)
    training.wait_for_step(30)
    training.nodes[1].kill()
    wait_until(lambda: "lost the others" in training.commands[0].stderr, training.commands[0])
    training.commands[1] = training.start(training.nodes[1])
    training.end()
    assert len(training.all("resume")) == 1
    assert same_bits(training.weights(), undisturbed.weights())
    assert figures(training.all("epoch")[-1:]) == figures(undisturbed.epochs[-1:])
