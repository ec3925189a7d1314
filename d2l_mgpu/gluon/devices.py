"""Which contexts a run uses: MXNet's word for a device is context.

Unlike PyTorch, MXNet tells `cpu(0)` from `cpu(1)`, although they are the same
processor: an array lives in exactly one of them. So replicas on one machine without a
GPU are separate copies, and nothing has to share a context.
"""

from collections.abc import Sequence

import mxnet as mx
from mxnet import npx

from d2l_mgpu.arguments import integer
from d2l_mgpu.devices import describe

__all__ = ["describe", "get_devices", "synchronize"]


def get_devices(num_devices: int, *, quiet: bool = False) -> list[mx.Context]:
    """Return `num_devices` contexts and print one line that says which.

    `gpu(0)` .. `gpu(k-1)` when MXNet finds k GPUs, otherwise `cpu(0)` .. `cpu(k-1)`.
    Raises ValueError when `num_devices` is not an integer >= 1.
    """
    available = mx.context.num_gpus()
    more = (
        f"; MXNet finds {available} GPU(s) here, and for more devices than that it "
        "takes"
    )
    num_devices = integer(
        "num_devices", num_devices, more=f"{more} contexts of the CPU"
    )
    device = mx.gpu if num_devices <= available else mx.cpu
    devices = [device(index) for index in range(num_devices)]
    if not quiet:
        print(f"Running on {describe(devices)}")
    return devices


def synchronize(devices: Sequence[mx.Context] = ()) -> None:
    """Wait until all queued work is done, whichever `devices` are named; without it a
    clock measures only how fast work is queued. MXNet queues on the CPU, too."""
    npx.waitall()
