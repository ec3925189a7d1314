"""Who is missing when a collective fails: heartbeats in the store that the ranks met
through.

What a failed collective reports is an address at best, and often only that time is up.
So every rank counts its seconds in the store, from a thread, also while it waits in a
collective: a rank that is alive is never mistaken for one that is gone. After a failure
the ranks whose counts stand still are the missing ones, and the first rank to find out
writes its diagnosis down for the others.
"""

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import torch.distributed as dist

BEAT = 1.0  # seconds between two counts
SILENCE = 4.0  # seconds without a count that make a rank missing
PATIENCE = 10.0  # seconds until a store that does not answer is given up


def node_name() -> str:
    """This machine, as in `"node 1 (gpu-b)"`, with the number that torchrun gave it."""
    return f"node {os.environ.get('GROUP_RANK', '0')} ({socket.gethostname()})"


class Heartbeat:
    """The heartbeat of this rank, and those of the others as the store shows them.

    A collective over all ranks, because each tells the others its node's name.
    """

    def __init__(self, store: dist.Store, rank: int, world_size: int) -> None:
        self.nodes: list[str] = [""] * world_size
        dist.all_gather_object(self.nodes, node_name())
        self.rank, self.stopped = rank, threading.Event()
        # who is missing, as this rank or another has found out
        self.found: str | None = None
        # A store of its own for each thread: one that waits for an answer blocks its
        # other users.
        self.counts, self.asked = (
            dist.PrefixStore("heartbeat", store.clone() if world_size > 1 else store)
            for _ in range(2)
        )
        self.thread = threading.Thread(
            target=self._beat, name="d2l_mgpu.heartbeat", daemon=True
        )
        self.thread.start()

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join(PATIENCE)

    def diagnosis(self, in_haste: Callable[[], bool]) -> str:
        """Say which ranks and nodes are missing; takes SILENCE seconds, at most
        PATIENCE.

        As soon as `in_haste()` it only sees whether the store is still there.
        """
        # In threads, because a store behind a cut line answers neither yes nor no.
        roll_call, look = (
            threading.Thread(target=task, daemon=True)
            for task in (self._call_roll, self._look)
        )
        roll_call.start()
        give_up = time.monotonic() + PATIENCE
        while roll_call.is_alive() and not in_haste() and time.monotonic() < give_up:
            roll_call.join(0.05)
        if in_haste() and self.found is None:
            look.start()
            look.join(BEAT)
        host = os.environ.get("MASTER_ADDR", self.nodes[0])
        return self.found or f"no answer from the node of the rendezvous, {host}"

    def _beat(self) -> None:
        with suppress(RuntimeError):  # the store is gone, and with it everyone's answer
            while not self.stopped.wait(BEAT):
                self.counts.add(str(self.rank), 1)
                if self.counts.check(["diagnosis"]):
                    self.found = self.counts.get("diagnosis").decode()

    def _look(self) -> None:
        with suppress(RuntimeError):
            self.asked.add(str(self.rank), 0)
            self.found = (
                self.found or "torchrun has ended it, because of another on its node"
            )

    def _call_roll(self) -> None:
        ranks = range(len(self.nodes))
        with suppress(RuntimeError):
            before = [self.asked.add(str(rank), 0) for rank in ranks]
            time.sleep(SILENCE)
            after = [self.asked.add(str(rank), 0) for rank in ranks]
            missing = [r for r in ranks if before[r] == after[r] and r != self.rank]
            nodes = ", ".join(sorted({self.nodes[rank] for rank in missing}))
            found = (
                f"no sign of life from {nodes}: rank {', '.join(map(str, missing))}"
                if missing
                else "all ranks are alive: one of them did not call the collective, "
                "or was too slow"
            )
            # Who comes later may find those gone who have already left because of the
            # failure.
            self.found = self.asked.compare_set("diagnosis", "", found).decode()
            if self.rank == 0 and len(missing) < len(ranks) - 1:
                # the store goes when we do: let the others read this first
                time.sleep(3 * BEAT)
