"""The processes of a job as one group: they meet, stop together, and say who is lost.

`process_group` is for programs that `torchrun` starts on any number of nodes; the same
program started alone is a group of one.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType

import torch
import torch.distributed as dist

from d2l_mgpu.devices import get_devices
from d2l_mgpu.processes.heartbeat import Heartbeat, node_name
from d2l_mgpu.processes.joining import join_process_group, rank_device, rendezvous
from d2l_mgpu.processes.lost_peer import blames_peer, first_line, leave

LONGEST = 1_000_000  # seconds, eleven days; clocks overflow, one here, one there, above


@dataclass
class Group:
    """This process among the others: its place, its device, and whether it was asked to
    stop."""

    rank: int
    world_size: int
    device: torch.device
    node: str
    asked_to_stop: bool = False

    def all_stop(self) -> bool:
        """Whether any rank was asked to stop. A collective: all ranks get the same
        answer, so that all of them stop after the same step."""
        return self.any_rank(self.asked_to_stop)

    def any_rank(self, says_yes: bool) -> bool:
        """Whether any rank says yes. A collective: all ranks get the same answer."""
        vote = torch.tensor(int(says_yes))
        dist.all_reduce(vote, dist.ReduceOp.MAX)
        return bool(vote)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked_to_stop and number == signal.SIGINT:  # Ctrl-C again: do not wait
            raise KeyboardInterrupt
        self.asked_to_stop = True


@contextmanager
def process_group(timeout: float) -> Iterator[Group]:
    """Inside, `torch.distributed` is initialized, and SIGTERM, Ctrl-C and the end of
    the terminal (SIGHUP) ask for a stop.

    Under `torchrun` this meets the other processes; inside `launch`, which has started
    a group, it is that group; otherwise a group of one. No collective waits longer than
    `timeout` seconds. If one fails, this process says which nodes are silent and ends
    with exit code 1. Raises ValueError for a `timeout` or an environment that cannot be
    right.
    """
    if not 0 < timeout <= LONGEST:
        raise ValueError(
            f"timeout must be above 0 and up to {LONGEST} seconds, not {timeout!r}."
        )
    if dist.is_initialized():
        yield Group(dist.get_rank(), dist.get_world_size(), rank_device(), node_name())
        return
    limit = timedelta(seconds=timeout)
    store: dist.Store = dist.HashStore()
    rank, world_size, local_rank, local_size = 0, 1, 0, 1
    try:
        if dist.is_torchelastic_launched():
            local_rank, local_size = _place_on_this_node()
            store, rank, world_size = next(dist.rendezvous("env://", timeout=limit))
            store = rendezvous(store, rank, world_size, timeout)
        devices = get_devices(local_size, quiet=True)
        join_process_group(devices, local_rank, store, rank, world_size, limit)
        heartbeat = Heartbeat(store, rank, world_size)
    except RuntimeError as error:
        leave(
            f"A process on {node_name()} could not meet the others: {first_line(error)}"
        )
    group = Group(rank, world_size, rank_device(), node_name())
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup wants it
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, group._ask) for number in numbers}
    together = world_size == 1
    try:
        yield group
        together = True
    except RuntimeError as error:
        if not blames_peer(error):
            raise
        # Torchrun, when it asks us to stop, knows who failed and waits for us: then in
        # haste.
        diagnosis = heartbeat.diagnosis(in_haste=lambda: group.asked_to_stop)
        leave(
            f"Rank {rank} on {group.node} lost the others: {diagnosis}.\n"
            f"What the collective said: {first_line(error)}"
        )
    finally:
        for number, handler in before.items():
            # nobody has put another in its place
            if signal.getsignal(number) == group._ask:
                signal.signal(number, handler)
        # after an error of this rank alone, taking leave could wait for ever
        if together:
            heartbeat.stop()
            dist.destroy_process_group()


def _place_on_this_node() -> tuple[int, int]:
    """Return (rank, number of ranks) on this node, as torchrun has put it into the
    environment."""
    found = [
        os.environ.get(f"LOCAL_{name}", "not set") for name in ("RANK", "WORLD_SIZE")
    ]
    if not all(map(str.isdecimal, found)) or int(found[0]) >= int(found[1]):
        raise ValueError(
            "TORCHELASTIC_RUN_ID is set, as torchrun does, but LOCAL_RANK is {} and "
            "LOCAL_WORLD_SIZE is {}: unset it, or start this with torchrun.".format(
                *found
            )
        )
    return int(found[0]), int(found[1])
