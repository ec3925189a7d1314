"""The same training in less time: where the data lie, their layout, precision, compilation, graphs.

None of it changes what is computed, except for rounding:

- `on_device` and `DeviceBatches`, in `data`, keep the images, as bytes, on the device that trains
  on them (60,000 images are 47 MB), and make each batch there: same bits, same order;
- `FastNet` is a network in the layout (channels last), the precision (bfloat16 under autocast,
  the weights stay float32) and, if asked for, the compiled form in which a device is quickest;
- `FastStep` is a step of training, on a GPU as one CUDA graph: launched once, not kernel by kernel.

Each piece is used only where it was measured to win; why not elsewhere stands beside it.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from d2l_mgpu.cuda_graphs import CudaGraphed
from d2l_mgpu.devices import device_of


def computes_bf16(device: torch.device) -> bool:
    """Whether `device` has instructions for bfloat16; without them it would be slower, not faster.

    Apple's GPUs and the CPUs of a torch without `torch.cpu.get_capabilities` count as "no": there
    was none to measure.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    has = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")
    return device.type == "cpu" and bool(has)


class FastNet(nn.Module):
    """`net` on `device`, which takes the same inputs to the same logits (float32) in less time.

    `net` itself is moved, keeps its float32 weights, and is the submodule `net`. With `bf16`,
    convolutions and products are computed in bfloat16, under `torch.autocast`; None means where
    `computes_bf16`. With `compiled_for=n`, training batches of n images go through `torch.compile`;
    others, such as the last of an epoch, do not, since each size is compiled anew. Where that
    fails, for lack of a C++ compiler for instance, one line on standard error says so, once.
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

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"compiled": None}  # a copy compiles its own network

    def extra_repr(self) -> str:
        parts = ["channels last"] if self.layout == torch.channels_last else []
        parts += ["bfloat16"] if self.bf16 else []
        parts += [f"compiled for batches of {self.compiled_for}"] if self.compiled_for else []
        return ", ".join(parts)

    def forward(self, X: Tensor) -> Tensor:
        if X.dim() == 4:  # else it has no channels to put last
            X = X.contiguous(memory_format=self.layout)
        logits = self._logits(X)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))  # not below float32

    def _logits(self, X: Tensor) -> Tensor:
        if not torch.amp.is_autocast_available(X.device.type):  # a pretended device
            return self.net(X)
        # No cache of rounded weights: inside an autocast of the caller it would outlive a step.
        with torch.autocast(X.device.type, torch.bfloat16, self.bf16, cache_enabled=False):
            if not self.training or len(X) != self.compiled_for:
                return self.net(X)
            try:
                if self.compiled is None:
                    # Compiling would warn wherever CUDA is installed and no GPU is there.
                    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
                    self.compiled = torch.compile(lambda X: self.net(X), dynamic=False)
                return self.compiled(X)
            except Exception as error:  # whatever keeps it from compiling, there is another way
                logits = self.net(X)  # where X itself is wrong, this one says so
                reason = str(error).strip().split("\n")[0]
                print(f"Not compiled, which is slower but no less right: {reason}", file=sys.stderr)
                self.compiled_for = None
                return logits


class FastStep:
    """A step of training: `step(X, y)` returns the mean loss of the batch, detached.

    Forward, backward and the optimizer's step, on tensors that lie on the device of `net`. With
    `graph=True` all of it is one CUDA graph for each shape of X. A graph repeats the learning
    rate that it was recorded with; where it changes, give it to the optimizer as a tensor on the
    device, with `fused=True`. Raises ValueError where a graph is wanted and `net` is not on a CUDA
    device, and where the optimizer changes no parameter of `net`.
    """

    def __init__(
        self, net: nn.Module, optimizer: torch.optim.Optimizer, *, graph: bool = False
    ) -> None:
        self.net, self.optimizer = net, optimizer
        device = device_of(net)
        changed = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if changed.isdisjoint(map(id, net.parameters())):
            raise ValueError("The optimizer has no parameter of net: make it of net.parameters().")
        if graph and device.type != "cuda":
            raise ValueError(f"A CUDA graph needs a CUDA device, not {device}: use graph=False.")
        self._take = self._eager
        if graph:
            self._take = graphed = CudaGraphed(self._eager, net.parameters())
            optimizer.register_load_state_dict_post_hook(graphed.forget)  # it has new tensors now

    def __call__(self, X: Tensor, y: Tensor) -> Tensor:
        return self._take(X, y)

    def _eager(self, X: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net(X), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()
