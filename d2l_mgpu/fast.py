"""The same training in less time: data, layout, precision, compilation, graphs.

None of it changes what is computed, except for rounding:

- `on_device` and `DeviceBatches`, in `data`, keep the images, as bytes, on the device
  that trains on them (60,000 images are 47 MB), and make each batch there: same bits,
  same order;
- `FastNet` is a network in channels last, in bfloat16 under autocast (the weights stay
  float32) and, if asked for, compiled;
- `FastStep` is a step of training, on a GPU as one CUDA graph: launched once, not
  kernel by kernel.

Each piece is used only where it was measured to be faster.
"""

import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from d2l_mgpu.cuda_graphs import CudaGraphed
from d2l_mgpu.devices import device_of


def computes_bf16(device: torch.device) -> bool:
    """Whether `device` has instructions for bfloat16; without them bfloat16 is slower
    than float32.

    Apple's GPUs and the CPUs of a torch without `torch.cpu.get_capabilities` count as
    "no": there was none to measure.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    has = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")
    return device.type == "cpu" and bool(has)


def in_bf16(
    device: torch.device, enabled: bool = True
) -> AbstractContextManager[object]:
    """Inside, convolutions and products are computed in bfloat16, if `enabled`."""
    if not torch.amp.is_autocast_available(device.type):  # a pretended device
        return nullcontext()
    # No cache of rounded weights: in an autocast of the caller it would outlive a step
    return torch.autocast(device.type, torch.bfloat16, enabled, cache_enabled=False)


class Compiled:
    """`net` through `torch.compile`, which compiles for each shape that it is given.

    Where that fails, for lack of a C++ compiler for instance, `net` itself, after one
    line on standard error that says why; `failure` is that reason, else None.
    """

    def __init__(self, net: nn.Module) -> None:
        # Else compiling would warn wherever CUDA is installed and no GPU is there
        logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
        self.net = net
        self.failure: str | None = None
        self.run: Callable[[Tensor], Tensor] = torch.compile(net, dynamic=False)

    def __call__(self, X: Tensor) -> Tensor:
        try:
            return self.run(X)
        except Exception as error:  # a compiler can fail in many ways
            output: Tensor = self.net(X)  # where X itself is wrong, this raises
            self.failure = str(error).strip().split("\n")[0]
            print(f"Not compiled, only slower: {self.failure}", file=sys.stderr)
            self.run = self.net
            return output


class FastNet(nn.Module):
    """`net` on `device`: the same images to the same logits (float32) in less time.

    `net` itself is moved, keeps its float32 weights, and is the submodule `net`. `bf16`
    None means where `computes_bf16`. With `compiled_for=n`, training batches of n
    images go through `torch.compile`; other sizes, such as the last batch of an epoch,
    do not, since each size would be compiled separately.
    """

    def __init__(
        self,
        net: nn.Module,
        device: torch.device | str,
        *,
        channels_last: bool = True,
        bf16: bool | None = None,
        compiled_for: int | None = None,
    ) -> None:
        super().__init__()
        device = torch.device(device)
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        self.net = net.to(device).to(memory_format=self.layout)
        self.bf16 = computes_bf16(device) if bf16 is None else bf16
        self.compiled_for = compiled_for
        self.compiled: Callable[[Tensor], Tensor] | None = None  # until it is needed

    def forward(self, X: Tensor) -> Tensor:
        if X.dim() == 4:  # else it has no channels to put last
            X = X.to(memory_format=self.layout)
        with in_bf16(X.device, self.bf16):
            if self.training and len(X) == self.compiled_for:
                self.compiled = self.compiled or Compiled(self.net)
                logits = self.compiled(X)
            else:
                logits = self.net(X)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def extra_repr(self) -> str:
        parts = {
            "channels last": self.layout == torch.channels_last,
            "bfloat16": self.bf16,
            f"compiled for batches of {self.compiled_for}": bool(self.compiled_for),
        }
        return ", ".join(part for part, has in parts.items() if has)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"compiled": None}  # a copy compiles its own network


class FastStep:
    """A step of training: `step(X, y)` returns the mean loss of the batch, detached.

    With `graph=True` it is one CUDA graph for each shape of X, which repeats the
    learning rate of its recording; one that changes has to be a tensor, with
    `fused=True`. Raises ValueError for a graph without a CUDA device, and for an
    optimizer of other parameters.
    """

    def __init__(
        self, net: nn.Module, optimizer: torch.optim.Optimizer, *, graph: bool = False
    ) -> None:
        self.net, self.optimizer = net, optimizer
        device = device_of(net)
        changed = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if changed.isdisjoint(map(id, net.parameters())):
            raise ValueError(
                "The optimizer has no parameter of net: make it of net.parameters()."
            )
        if graph and device.type != "cuda":
            raise ValueError(
                f"A CUDA graph needs a CUDA device, not {device}: use graph=False."
            )
        self._take = self._eager
        if graph:
            self._take = graphed = CudaGraphed(self._eager, net.parameters())
            # Loading a state gives the optimizer new tensors
            optimizer.register_load_state_dict_post_hook(graphed.forget)

    def __call__(self, X: Tensor, y: Tensor) -> Tensor:
        return self._take(X, y)

    def _eager(self, X: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net(X), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()
