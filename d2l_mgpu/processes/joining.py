"""How a process becomes one rank of several, which it is, and on which device it
computes."""

import time
import uuid
from datetime import timedelta

import torch
import torch.distributed as dist

from d2l_mgpu.devices import get_devices

_device: torch.device | None = None  # of this rank; set in a process group only


def rank_device() -> torch.device:
    """Return the device of this rank; outside a process group, the first of this
    machine."""
    return get_devices(1, quiet=True)[0] if _device is None else _device


def this_rank() -> tuple[int, int]:
    """Return (rank, world size): (0, 1) outside `launch`."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def join_process_group(
    devices: list[torch.device],
    local_rank: int,
    store: dist.Store,
    rank: int,
    world_size: int,
    timeout: timedelta | None = None,
) -> None:
    """Meet the other ranks through `store`, with `devices[local_rank]` as this rank's
    device.

    `devices` are those of all ranks on this node. Gloo where ranks share a device,
    which NCCL refuses; tensors on the CPU always travel by gloo.
    """
    global _device
    device = _device = devices[local_rank]
    own = device.type != "cpu" and len(set(devices)) == len(devices)
    if device.index is not None:
        torch.accelerator.set_device_index(device.index)
    backend = "gloo"
    if own:
        backend = (
            f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"
        )
    agree_on(backend, store, rank, world_size)
    dist.init_process_group(
        backend,
        timeout=timeout,
        store=store,
        rank=rank,
        world_size=world_size,
        device_id=device if own and device.type == "cuda" else None,
    )
    # a rank that is done at once must not leave before the others have connected
    dist.barrier()


def agree_on(backend: str, store: dist.Store, rank: int, world_size: int) -> None:
    """Raise ValueError if a rank would use another backend: all would wait for each
    other.

    Rank 0 looks at all others, and they at rank 0.
    """
    store.set(f"backend/{rank}", backend)
    for peer in range(world_size) if rank == 0 else [0]:
        theirs = store.get(f"backend/{peer}").decode()
        if theirs != backend:
            raise ValueError(
                f"Rank {rank} would send by {backend}, but rank {peer} by {theirs}: "
                "all nodes need as many GPUs as they have ranks, or none. Look at "
                "`nvidia-smi` on each, or hide the GPUs with CUDA_VISIBLE_DEVICES=''."
            )


def rendezvous(
    store: dist.Store, rank: int, world_size: int, timeout: float
) -> dist.Store:
    """Return a part of `store` that only the ranks alive now use.

    When torchrun restarts the workers, its store still holds the addresses of the dead,
    and a rank that is quicker than its peer would read one of those. So rank 0 chooses
    a name that was never used, and tells it to each rank that asks with such a name
    itself.
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
            # perhaps in the name of a dead one: no harm
            if store.check([f"asks/{peer}"]):
                store.set(f"answer/{store.get(f'asks/{peer}').decode()}", name)
            if store.check([f"{name}/{peer}"]):
                absent.remove(peer)
        if absent and time.monotonic() > give_up:
            ranks = ", ".join(map(str, sorted(absent)))
            raise RuntimeError(f"rank {ranks} did not come within {timeout:g} seconds")
        time.sleep(0.01)
    return dist.PrefixStore(name, store)
