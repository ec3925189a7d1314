"""Training on several machines: equal to one, also when one of them is lost and comes back.

The machines are network namespaces (tests/support/nodes.py), each with its own torchrun; they meet
over TCP and see one folder for the checkpoints. Nothing here asserts how long something takes:
what must end is waited for, with a bound far beyond what it needs.
"""

import shutil
import time
from pathlib import Path

import pytest
import torch

from tests.support.nodes import wait_until
from tests.support.runs import Run, figures, same_bits
from tests.support.training_on_nodes import BOUND, LONG, RECIPE, SHORT, MakeNodes, Training

pytestmark = pytest.mark.slow


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
