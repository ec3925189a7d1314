"""Which devices a run uses: as many accelerators as asked for, or replicas that share
one device.

The mathematics of data parallelism does not depend on where a replica lives. So when
there are fewer accelerators than replicas, all replicas go to one device (the only GPU,
or the CPU) and every chapter still runs. Hence a list of devices may repeat a device,
and no code in this package may assume that two replicas live in different places.
"""

from collections.abc import Sequence

import torch
from torch import nn

from d2l_mgpu.arguments import integer


def get_devices(num_devices: int, *, quiet: bool = False) -> list[torch.device]:
    """Return `num_devices` devices and print one line that says which.

    Accelerators 0 .. k-1 (CUDA, MPS, XPU: whatever `torch.accelerator` finds) when
    there are k of them; otherwise one device, k times: the only GPU, or the CPU where
    that GPU is Apple's. Raises ValueError when `num_devices` is not an integer from 1
    to 1024.
    """
    available = (
        torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    )
    more = (
        f"; this machine has {available} accelerator(s), and more devices than that "
        "become"
    )
    num_devices = integer(
        "num_devices", num_devices, most=1024, more=f"{more} replicas that share one"
    )
    kind = torch.accelerator.current_accelerator() if available else None
    lonely = kind is not None and kind.type == "mps" and num_devices > 1
    # Apple's GPU has neither float64 nor collectives: no replicas
    if kind is None or lonely:
        devices = [torch.device("cpu")] * num_devices
    elif num_devices <= available:
        devices = [torch.device(kind.type, index) for index in range(num_devices)]
    else:
        devices = [torch.device(kind.type, 0)] * num_devices
    if not quiet:
        print(f"Running on {describe(devices)}")
    return devices


def describe(devices: Sequence[torch.device]) -> str:
    """Say in a few words what `devices` are: `"cuda:0, cuda:1"` or `"2 replicas on
    cpu"`."""
    if len(devices) > 1 and len(set(devices)) == 1:
        return f"{len(devices)} replicas on {devices[0]}"
    return ", ".join(str(device) for device in devices)


def device_of(net: nn.Module) -> torch.device:
    """Return where the first parameter of `net` lies; the CPU for a net without
    parameters."""
    return next((p.device for p in net.parameters()), torch.device("cpu"))


def synchronize(devices: Sequence[torch.device]) -> None:
    """Wait until every device has finished its queued work; without it a clock measures
    only how fast work is queued. The CPU queues nothing, so there is nothing to wait
    for."""
    for device in set(devices):
        # lazy: pretended, and computed on the CPU
        if device.type not in ("cpu", "lazy"):
            torch.accelerator.synchronize(device)
