"""Images in memory as bytes, and the batches they make, on the CPU or on another
device."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
)

from d2l_mgpu.arguments import integer

DataIter = Iterable[tuple[Tensor, Tensor]]
"""What training and evaluation loop over: batches X, y."""


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Grey images in memory as bytes; indexing converts no more than what it fetches.

    Made from uint8 (n, 28, 28) and int64 (n,). ``images[i]``, where i is an integer, a
    slice or a list of integers, is X, float32 (..., 1, 28, 28) in 0..1 (28 becomes
    ``resize``), and y, int64 (...), both where the bytes are: on the CPU, unless
    `on_device` moved them. Raises ValueError for other pixels and labels.
    """

    def __init__(
        self,
        pixels: Tensor,
        labels: Tensor,
        *,
        name: str,
        origin: str,
        resize: int | None = None,
    ) -> None:
        if (
            pixels.dtype != torch.uint8
            or pixels.dim() != 3
            or labels.shape != pixels.shape[:1]
        ):
            raise ValueError(
                "Images are made from pixels, uint8 (n, height, width), and labels "
                f"(n,), not from {pixels.dtype} {tuple(pixels.shape)} and "
                f"{tuple(labels.shape)}."
            )
        self.pixels, self.labels = pixels, labels
        self.name, self.origin, self.resize = name, origin, resize
        # A GPU multiplies by 1/255 where it is told to divide by a number of Python's,
        # which may differ in the last bit; by a tensor it divides.
        self.white = torch.full((), 255.0, device=pixels.device)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Any) -> tuple[Tensor, Tensor]:
        X, y = self.pixels[index].unsqueeze(-3).float() / self.white, self.labels[index]
        if self.resize is not None:
            side = self.resize
            batch = X.reshape(-1, 1, *X.shape[-2:])
            batch = F.interpolate(
                batch, size=(side, side), mode="bilinear", antialias=True
            )
            X = batch.reshape(*X.shape[:-2], side, side)
        return X, y

    def __repr__(self) -> str:
        return f"{self.name}: {len(self)} images, {self.origin}"


def on_device(images: Images, device: torch.device) -> Images:
    """Return the same images with their bytes, and what indexing makes of them, on
    `device`."""
    return Images(
        images.pixels.to(device),
        images.labels.to(device),
        name=images.name,
        origin=images.origin,
        resize=images.resize,
    )


class Batches(DataLoader[tuple[Tensor, Tensor]]):
    """A DataLoader that fetches each batch with one indexing operation.

    ``seed=None`` keeps the order of the images; with a seed, every epoch has a new
    order. Only its own generator is used, so a loop over the batches leaves torch's
    global one as it was.
    """

    dataset: Images

    def __init__(
        self, images: Images, batch_size: int, *, seed: int | None = None
    ) -> None:
        generator = torch.Generator()
        generator.manual_seed(0 if seed is None else integer("seed", seed, least=0))
        order = (
            SequentialSampler(images)
            if seed is None
            else RandomSampler(images, generator=generator)
        )
        batches = BatchSampler(
            order, integer("batch_size", batch_size), drop_last=False
        )
        # From pinned memory a GPU fetches a batch by itself, while the program goes on.
        pinned = torch.cuda.is_available() and images.pixels.device.type == "cpu"
        super().__init__(
            images,
            sampler=batches,
            batch_size=None,
            generator=generator,
            pin_memory=pinned,
        )

    def __repr__(self) -> str:
        return f"{self.dataset!r}, in {len(self)} batches"


class DeviceBatches(Batches):
    """`Batches` made on `device`: X, float32 (n, 1, 28, 28), and y, int64 (n,), lie
    there.

    The order for a `seed`, and every bit, are those of `Batches`.
    """

    def __init__(
        self,
        images: Images,
        batch_size: int,
        device: torch.device,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(on_device(images, device), batch_size, seed=seed)
