"""When one of several machines is lost, the others name it, and the run ends.

The machines are those of test_nodes.py.
"""

from pathlib import Path

import pytest

from tests.support.training_on_nodes import BOUND, LONG, MakeNodes, Training

pytestmark = pytest.mark.slow


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
