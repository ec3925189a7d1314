"""One training on several nodes, each with its own torchrun."""

import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.nodes import Command, Node, wait_until
from tests.support.runs import TRAIN, Traces

MakeNodes = Callable[[int], list[Node]]
BOUND = 120  # seconds in which every command must have ended
RECIPE = ["--num-train", "320", "--num-test", "200", "--batch-size", "16", "--lr", "0.02"]
RECIPE += ["--checkpoint-every", "20", "--events-every", "1"]  # 20 steps are an epoch
SHORT, LONG = ["--epochs", "2"], ["--epochs", "12"]  # LONG leaves time to disturb it
# How soon torchrun takes a silent node for dead (1 s x 5), and how long it then waits for others.
SOON = "keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=5,close_timeout=5"


class Training(Traces):
    """It meets over TCP, and sees one folder for the checkpoints."""

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
