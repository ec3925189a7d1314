"""Devices that are pretended: their tensors hold real numbers, and refuse to be mixed.

Where there is no GPU, replicas share the CPU, and nobody notices a tensor that was left
behind on another device: there is no other. A pretended tensor computes on the CPU,
runs autograd, and knows the device that it was put on. An operation on tensors of two
devices raises the error that CUDA would raise; what was copied by `to`, `copy_` or the
like may cross.

How it works: PyTorch hands every operation, those of backward included, to `_Placing`,
a dispatch mode (`torch.utils._python_dispatch`), which looks at the devices, computes
on the CPU, and puts the device's name on what comes out. The name is `lazy`, because
PyTorch knows that kind of device and nothing here uses it.

What it cannot see: streams and other things that happen late, the memory of a device,
and NCCL.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

from d2l_mgpu.arguments import integer

CPU = torch.device("cpu")
KIND = "lazy"
aten = torch.ops.aten
# what may take numbers from device to device
MOVES = {aten._to_copy.default, aten.copy_.default}
# what a tensor on the CPU may choose
SELECTS = {aten.index.Tensor, aten.index_put_.default}
JOINS = {aten.cat.default, aten.stack.default}
READS = {aten._local_scalar_dense.default}  # item, bool, int and float end here


class PretendedDevices(list[torch.device]):
    """The devices, `lazy:0` and so on, and how often numbers were read from one of
    them.

    A read (`.item()`, `.tolist()`, `.cpu()`, `if x > 0`) makes the program wait for the
    device.
    """

    reads = 0


@contextmanager
def pretended_devices(num_devices: int) -> Iterator[PretendedDevices]:
    """Inside, there are `num_devices` pretended devices, for everything that takes
    devices.

    Raises ValueError when `num_devices` is not an integer from 1 to 64.
    """
    count = integer("num_devices", num_devices, most=64)
    devices = PretendedDevices(torch.device(KIND, index) for index in range(count))
    with _Making(), _Placing(devices):
        yield devices


class Placed(Tensor):
    """A tensor on a pretended device; `numbers`, on the CPU, is where its numbers
    really are."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, numbers: Tensor, device: torch.device) -> "Placed":
        self = Tensor._make_wrapper_subclass(
            cls,
            numbers.shape,
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=device,
            requires_grad=numbers.requires_grad,
        )
        self.numbers = numbers
        return self

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{str(self.numbers)[:-1]}, device='{self.device}')"

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.numbers.untyped_storage()

    def data_ptr(self) -> int:
        return self.numbers.data_ptr()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use "
            "Tensor.cpu() to copy the tensor to host memory first."
        )

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        raise RuntimeError(
            "A tensor of a pretended device was used after `with pretended_devices` "
            f"had ended ({func}): read it with .cpu() inside."
        )


class _Making(TorchFunctionMode):
    """Makes on the CPU what torch would make of Python's numbers on the device itself:
    tensors from `torch.tensor(..., device=...)`, and indices from lists."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and (
            device := kwargs.pop("device", None)
        ):
            return func(*args, **kwargs).to(device)
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(
            args[1], list
        ):
            args = (args[0], torch.tensor(args[1]), *args[2:])
        return func(*args, **kwargs)


class _Placing(TorchDispatchMode):
    """Sees every operation: where its tensors are, and where its result belongs."""

    def __init__(self, devices: PretendedDevices) -> None:
        super().__init__()
        self.devices = devices

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        target = self._target(func, tensors, kwargs.get("device"))
        if kwargs.get("device") is not None and target.type == KIND:
            kwargs["device"] = CPU
        found = func(*tree_map(_numbers, args), **tree_map(_numbers, kwargs))
        from_device = any(isinstance(x, Placed) for x in tensors)
        if target.type != KIND:
            self.devices.reads += from_device
            return found
        placed = tree_map(
            lambda x: Placed(x, target) if isinstance(x, Tensor) else x, found
        )
        self.devices.reads += func in READS
        return return_and_correct_aliasing(func, tuple(args), kwargs, placed)

    def _target(self, func: Any, tensors: list[Tensor], asked: Any) -> torch.device:
        """Where the result belongs; raises RuntimeError if that cannot be."""
        if asked is not None:
            device = torch.device(asked)
            if device.type == KIND and device not in self.devices:
                raise RuntimeError(
                    f"There is no device {device} among the {len(self.devices)} "
                    "pretended ones."
                )
            return device
        if func is aten.copy_.default:
            return tensors[0].device
        if func in SELECTS and all(x.device == CPU for x in tensors[1:]):
            return tensors[0].device
        # A tensor without dimensions counts as a number, if it is on the CPU, but not
        # in `cat`.
        numbers = (
            []
            if func in JOINS
            else [x for x in tensors if x.dim() == 0 and x.device == CPU]
        )
        places = {
            str(x.device): x.device for x in tensors if not any(x is n for n in numbers)
        }
        if len(places) > 1 and func not in MOVES:
            first, second = sorted(places)[:2]
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least "
                f"two devices, {first} and {second}!"
            )
        return next(iter(places.values()), CPU)


def _numbers(x: Any) -> Any:
    return x.numbers if isinstance(x, Placed) else x
