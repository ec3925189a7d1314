"""CUDA graphs: work on a GPU that is recorded once, and launched as a whole from then
on."""

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

# steps before a CUDA graph is captured: libraries choose and load kernels in them
WARM_UP = 3


class CudaGraphed:
    """`fn(X, y, *numbers)`, recorded on a GPU as a CUDA graph once, and then replayed.

    `fn` returns one tensor, and may leave gradients in `params`. Each shape, and each
    choice of `numbers`, has a graph of its own; the first calls are the warm-up that
    recording needs, and count like all others. A replay repeats every number that
    Python saw in the recording, such as a learning rate: what changes has to be in
    tensors.
    """

    def __init__(
        self, fn: Callable[..., Tensor], params: Iterable[nn.Parameter]
    ) -> None:
        self.fn, self.params = fn, [p for p in params if p.requires_grad]
        self.calls: Counter[Any] = Counter()
        self.graphs: dict[Any, Callable[[Tensor, Tensor], Tensor]] = {}

    def __call__(self, X: Tensor, y: Tensor, *numbers: float) -> Tensor:
        key = X.shape, y.shape, numbers
        self.calls[key] += 1
        with torch.cuda.device(X.device):
            if self.calls[key] <= WARM_UP:
                with self._aside():
                    return self.fn(X, y, *numbers)
            if key not in self.graphs:
                self.graphs[key] = self._record(X, y, *numbers)
            return self.graphs[key](X, y)

    def forget(self, *_: object) -> None:
        """Start again: the tensors that the graphs use have been replaced."""
        self.calls.clear()
        self.graphs.clear()

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Inside, work is queued on a stream of its own, as a recording needs it."""
        here, stream = torch.cuda.current_stream(), torch.cuda.Stream()
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            yield
        here.wait_stream(stream)

    def _record(
        self, X: Tensor, y: Tensor, *numbers: float
    ) -> Callable[[Tensor, Tensor], Tensor]:
        static_X, static_y, graph = X.clone(), y.clone(), torch.cuda.CUDAGraph()
        for p in self.params:
            p.grad = None  # then backward, when replayed, writes it and does not add
        gc.collect()  # an old graph that is freed during a recording would spoil it
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
            result = self.fn(static_X, static_y, *numbers)
        gradients = [p.grad for p in self.params]

        def replay(X: Tensor, y: Tensor) -> Tensor:
            static_X.copy_(X)
            static_y.copy_(y)
            graph.replay()
            for p, gradient in zip(self.params, gradients, strict=True):
                p.grad = gradient  # zero_grad has removed it; the graph writes there
            return result.clone()  # the next replay overwrites it

        return replay
