"""Images to train on: Fashion-MNIST (or MNIST) where it can be had, drawn garments where not.

Where the images come from, unless ``source`` or the variable ``D2L_MGPU_SOURCE`` says otherwise:

1. the folder that the variable ``D2L_MGPU_DATA`` names, as ``<folder>/FashionMNIST/raw``. Whoever
   sets it wants those very images, so it is an error, not a fallback, when they are not there;
2. the usual folder, ``~/.cache/d2l_mgpu``;
3. a download into the usual folder;
4. the drawings of :mod:`d2l_mgpu.garments`, for Fashion-MNIST only.

``'auto'`` tries all four in this order, ``'real'`` the first three, ``'generated'`` takes the last
and neither reads nor downloads. One printed line says what was loaded and from where.
"""

import os
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

from d2l_mgpu import garments, real_images

FASHION_MNIST_LABELS = garments.LABELS
"""The names of the ten classes; the label is the index."""


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Grey images in memory as bytes; indexing converts no more than what it fetches.

    Made from uint8 [n, 28, 28] and int64 [n]. ``images[i]``, where i is an integer, a slice or a
    list of integers, is X, float32 [..., 1, 28, 28] in 0..1 (28 becomes ``resize``), and y,
    int64 [...], both where the bytes are: on the CPU, unless `fast.on_device` moved them.
    """

    def __init__(
        self, pixels: Tensor, labels: Tensor, *, name: str, origin: str, resize: int | None = None
    ) -> None:
        self.pixels, self.labels = pixels, labels
        self.name, self.origin, self.resize = name, origin, resize
        # A GPU multiplies by 1/255 where it is told to divide by a number of Python's, which may
        # differ in the last bit; by a tensor it divides.
        self.white = torch.full((), 255.0, device=pixels.device)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Any) -> tuple[Tensor, Tensor]:
        X, y = self.pixels[index].unsqueeze(-3).float() / self.white, self.labels[index]
        if self.resize is not None:
            side = self.resize
            batch = X.reshape(-1, 1, *X.shape[-2:])
            batch = F.interpolate(batch, size=(side, side), mode="bilinear", antialias=True)
            X = batch.reshape(*X.shape[:-2], side, side)
        return X, y

    def __repr__(self) -> str:
        return f"{self.name}: {len(self)} images, {self.origin}"


class Batches(DataLoader[tuple[Tensor, Tensor]]):
    """A DataLoader that fetches each batch with one indexing operation.

    ``seed=None`` keeps the order of the images; with a seed, every epoch has a new order. Only its
    own generator is used, so a loop over the batches leaves torch's global one as it was.
    """

    dataset: Images

    def __init__(self, images: Images, batch_size: int, *, seed: int | None = None) -> None:
        generator = torch.Generator().manual_seed(0 if seed is None else seed)
        order = (
            SequentialSampler(images)
            if seed is None
            else RandomSampler(images, generator=generator)
        )
        batches = BatchSampler(order, batch_size, drop_last=False)
        super().__init__(images, sampler=batches, batch_size=None, generator=generator)

    def __repr__(self) -> str:
        return f"{self.dataset!r}, in {len(self)} batches"


def load_data_fashion_mnist(
    batch_size: int,
    resize: int | None = None,
    *,
    name: str = "FashionMNIST",
    num_train: int | None = None,
    num_test: int | None = None,
    source: str | None = None,
    seed: int = 0,
) -> tuple[Batches, Batches]:
    """Load Fashion-MNIST, or with ``name='MNIST'`` MNIST: the training and the test batches.

    A batch is X, float32 [b, 1, 28, 28] in 0..1 (28 becomes ``resize``), and y, int64 [b], both on
    the CPU; the last batch may be smaller. ``seed`` decides the order of the training batches,
    which is new in each epoch, and nothing else. ``num_train`` and ``num_test`` keep the first
    images only. ``source`` is 'auto', 'real' or 'generated': see the top of this module.

    Raises ValueError for an argument or a file that cannot be right, FileNotFoundError when
    ``D2L_MGPU_DATA`` lacks the images, ``real_images.DownloadError`` (an OSError) when the real
    ones were asked for and cannot be had.
    """
    source, folder = _checked_source(source), None
    if name not in ("FashionMNIST", "MNIST"):
        raise ValueError(f"name must be 'FashionMNIST' or 'MNIST', not {name!r}.")
    _check_count("batch_size", batch_size)
    for what, value in (("resize", resize), ("num_train", num_train), ("num_test", num_test)):
        if value is not None:
            _check_count(what, value)
    if name == "MNIST" and source == "generated":
        raise ValueError(
            "There is no generated MNIST, the drawings stand in for Fashion-MNIST: "
            "ask for name='FashionMNIST' or source='real'."
        )
    if source != "generated":
        try:
            folder = real_images.find(name)
        except real_images.DownloadError as error:
            if source == "real" or name == "MNIST":
                raise
            print(f"{error}. Drawings stand in for it.")
    if folder is None:
        parts = _drawings(num_train, train=True), _drawings(num_test, train=False)
        title = "Generated garments (not Fashion-MNIST)"
        origin = "drawn by d2l_mgpu.garments with seed 0"
    else:
        parts, title = real_images.read(folder, name), name
        origin = f"from {real_images.shown(folder)}"
    train, test = (
        Images(pixels[:count], labels[:count], name=title, origin=origin, resize=resize)
        for (pixels, labels), count in zip(parts, (num_train, num_test), strict=True)
    )
    for what, images, value in (("num_train", train, num_train), ("num_test", test, num_test)):
        if value is not None and value > len(images):
            raise ValueError(f"{what} is {value}, but there are only {len(images)} ({title}).")
    print(f"{title}: {len(train)} training and {len(test)} test images, {origin}")
    return Batches(train, batch_size, seed=seed), Batches(test, batch_size)


def _check_count(what: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{what} must be a whole number of at least 1, not {value!r}.")


def _checked_source(source: str | None) -> str:
    """The argument, else ``D2L_MGPU_SOURCE``, else 'auto'."""
    said_by = "source"
    if source is None:
        source, said_by = os.environ.get("D2L_MGPU_SOURCE") or "auto", "D2L_MGPU_SOURCE"
    if source not in ("auto", "real", "generated"):
        raise ValueError(f"{said_by} must be 'auto', 'real' or 'generated', not {source!r}.")
    return source


@lru_cache(maxsize=4)
def _drawings(count: int | None, train: bool) -> real_images.Part:
    """The first `count` training or test drawings, of 12,000 or 2,000; each set is drawn once."""
    total = 12_000 if train else 2_000
    images, labels = garments.generate(min(count or total, total), train=train)
    return torch.from_numpy(images), torch.from_numpy(labels)
