"""One rank among the processes of a job: meeting the others, stopping together, losing one.

`process_group` is for programs that `torchrun` starts on any number of nodes; the same program
started alone is a group of one.
"""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import NoReturn

import torch
import torch.distributed as dist

from d2l_mgpu.devices import get_devices
from d2l_mgpu.roll_call import Heart, node_name

# Process $1 gets SIGTERM if, for 10 s, it does not take notice of the end of its child $0.
_WATCH = "for _ in 1 2 3 4 5 6 7 8 9 10; do sleep 1; kill -0 $0 || exit; done; kill $1"

_device: torch.device | None = None  # of this rank; set in a process group only


def rank_device() -> torch.device:
    """Return the device of this rank; outside a process group, the first of this machine."""
    return get_devices(1, quiet=True)[0] if _device is None else _device


def join(
    devices: list[torch.device],
    local_rank: int,
    store: dist.Store,
    rank: int,
    world_size: int,
    timeout: timedelta | None = None,
) -> None:
    """Meet the other ranks through `store`, with `devices[local_rank]` as this rank's device.

    `devices` are those of all ranks on this node. Gloo where ranks share a device, which NCCL
    refuses; tensors on the CPU always travel by gloo.
    """
    global _device
    device = _device = devices[local_rank]
    own = device.type != "cpu" and len(set(devices)) == len(devices)
    if device.index is not None:
        torch.accelerator.set_device_index(device.index)
    backend = f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"
    dist.init_process_group(
        backend if own else "gloo",
        timeout=timeout,
        store=store,
        rank=rank,
        world_size=world_size,
        device_id=device if own and device.type == "cuda" else None,
    )
    dist.barrier()  # a rank that is done at once must not leave before the others have connected


def meet(store: dist.Store, rank: int, world_size: int, timeout: float) -> dist.Store:
    """Return a part of `store` that only the ranks alive now use.

    When torchrun restarts the workers, its store still holds the addresses of the dead, and a
    rank that is quicker than its peer would read one of those. So rank 0 chooses a name that was
    never used, and tells it to each rank that asks with such a name itself.
    """
    name = uuid.uuid4().hex
    if rank > 0:
        store.set(f"asks/{rank}", name)
        part = store.get(f"answer/{name}").decode()
        store.set(f"{part}/{rank}", "is here")
        return dist.PrefixStore(part, store)
    absent, give_up = set(range(1, world_size)), time.monotonic() + timeout
    while absent:
        for peer in sorted(absent):
            if store.check([f"asks/{peer}"]):  # perhaps in the name of a dead one: no harm
                store.set(f"answer/{store.get(f'asks/{peer}').decode()}", name)
            if store.check([f"{name}/{peer}"]):
                absent.remove(peer)
        if absent and time.monotonic() > give_up:
            ranks = ", ".join(map(str, sorted(absent)))
            raise RuntimeError(f"rank {ranks} did not come within {timeout:g} seconds")
        time.sleep(0.01)
    return dist.PrefixStore(name, store)


@dataclass
class Group:
    """This process among the others: its place, its device, and whether it was asked to stop."""

    rank: int
    world_size: int
    device: torch.device
    node: str
    asked_to_stop: bool = False

    def all_stop(self) -> bool:
        """Whether any rank was asked to stop. A collective: all ranks get the same answer, so
        that all of them stop after the same step."""
        vote = torch.tensor(int(self.asked_to_stop))
        dist.all_reduce(vote, dist.ReduceOp.MAX)
        return bool(vote)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked_to_stop and number == signal.SIGINT:  # Ctrl-C again: do not wait
            raise KeyboardInterrupt
        self.asked_to_stop = True


@contextmanager
def process_group(timeout: float) -> Iterator[Group]:
    """Inside, `torch.distributed` is initialized, and SIGTERM and Ctrl-C ask for a stop.

    Under `torchrun` this meets the other processes; inside `launch`, which has started a group,
    it is that group; otherwise a group of one. No collective waits longer than `timeout` seconds.
    If one fails, this process says which nodes are silent and ends with exit code 1.
    """
    if dist.is_initialized():
        yield Group(dist.get_rank(), dist.get_world_size(), rank_device(), node_name())
        return
    limit = timedelta(seconds=timeout)
    store: dist.Store = dist.HashStore()
    rank, world_size, local_rank, local_size = 0, 1, 0, 1
    try:
        if dist.is_torchelastic_launched():
            local_rank, local_size = (int(os.environ[f"LOCAL_{n}"]) for n in ("RANK", "WORLD_SIZE"))
            store, rank, world_size = next(dist.rendezvous("env://", timeout=limit))
            store = meet(store, rank, world_size, timeout)
        join(get_devices(local_size, quiet=True), local_rank, store, rank, world_size, limit)
        heart = Heart(store, rank, world_size)
    except RuntimeError as error:
        _leave(f"A process on {node_name()} could not meet the others: {first_line(error)}")
    group = Group(rank, world_size, rank_device(), node_name())
    before = {
        number: signal.signal(number, group._ask) for number in (signal.SIGTERM, signal.SIGINT)
    }
    together = world_size == 1
    try:
        yield group
        together = True
    except RuntimeError as error:
        if not blames_peer(error):
            raise
        # Torchrun, when it asks us to stop, knows who failed and waits for us: then in haste.
        finding = heart.finding(in_haste=lambda: group.asked_to_stop)
        _leave(
            f"Rank {rank} on {group.node} lost the others: {finding}.\n"
            f"What the collective said: {first_line(error)}"
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if together:  # after an error of this rank alone, taking leave could wait for ever
            heart.stop()
            dist.destroy_process_group()


def _leave(why: str) -> NoReturn:
    """End at once: with a peer gone, taking leave of the process group could wait for ever.

    So could torchrun, and not notice our end: on a node that is cut off it has asked the store of
    the rendezvous something and waits, for as long as TCP does, for the answer. It sees SIGTERM.
    """
    print(why, file=sys.stderr, flush=True)
    if dist.is_torchelastic_launched():
        ids, nothing = [str(os.getpid()), str(os.getppid())], subprocess.DEVNULL
        command = ["sh", "-c", _WATCH, *ids]
        with suppress(OSError):  # a system without sh
            subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)
    os._exit(1)


def first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


def blames_peer(error: BaseException | None) -> bool:
    """Whether `error`, or what it was raised from, is a collective that another rank left."""
    if error is None:
        return False
    if isinstance(error, dist.DistError):
        return True
    if isinstance(error, RuntimeError) and re.search(r"gloo|nccl", str(error), re.IGNORECASE):
        return True
    return blames_peer(error.__cause__ or error.__context__)
