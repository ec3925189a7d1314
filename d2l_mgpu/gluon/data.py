"""The images of the PyTorch edition, in the same order, as MXNet arrays."""

from collections.abc import Iterator
from typing import Any

import mxnet as mx
from mxnet import np
from torch import Tensor

from d2l_mgpu import data


def from_torch(tensor: Tensor) -> np.ndarray:
    """Copy a tensor of PyTorch to `mx.cpu(0)`, with its shape and dtype."""
    return np.array(tensor.detach().cpu().numpy(), ctx=mx.cpu(0))


class ArrayBatches:
    """The batches of the PyTorch edition, each copied to `mx.cpu(0)` when its turn
    comes."""

    def __init__(self, batches: data.Batches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for X, y in self.batches:
            yield from_torch(X), from_torch(y)

    def __repr__(self) -> str:
        return repr(self.batches)


def load_data_fashion_mnist(
    batch_size: int, resize: int | None = None, **options: Any
) -> tuple[ArrayBatches, ArrayBatches]:
    """Load the training and the test batches; the arguments, the images and their order
    are those of `d2l_mgpu.load_data_fashion_mnist`.

    A batch is X, float32 (n, 1, 28, 28) in 0..1, and y, int64 (n,), both on
    `mx.cpu(0)`.
    """
    train_iter, test_iter = data.load_data_fashion_mnist(batch_size, resize, **options)
    return ArrayBatches(train_iter), ArrayBatches(test_iter)
