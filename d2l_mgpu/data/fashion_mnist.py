"""Load Fashion-MNIST or MNIST as batches, or the drawings that stand in for it."""

import os
from functools import cache, lru_cache

import torch

from d2l_mgpu.arguments import integer
from d2l_mgpu.data import garments, real_images
from d2l_mgpu.data.images import Batches, Images

FASHION_MNIST_LABELS = garments.LABELS
"""The names of the ten classes; the label is the index."""


say_once = cache(print)
"""Print a line, unless this process has printed the same one before."""


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
    """Load Fashion-MNIST, or with ``name='MNIST'`` MNIST: the training and the test
    batches.

    A batch is X, float32 (n, 1, 28, 28) in 0..1 (28 becomes ``resize``), and y, int64
    (n,), both on the CPU; the last batch may be smaller. ``seed`` decides the order of
    the training batches, which is new in each epoch, and nothing else. ``num_train``
    and ``num_test`` keep the first images only. ``source`` is 'auto', 'real' or
    'generated': see `d2l_mgpu.data`.

    Raises ValueError for an argument or a file that cannot be right, FileNotFoundError
    when ``D2L_MGPU_DATA`` lacks the images, ``real_images.DownloadError`` (an OSError)
    when the real ones were asked for and cannot be had.
    """
    source, folder = _checked_source(source), None
    if name not in ("FashionMNIST", "MNIST"):
        raise ValueError(f"name must be 'FashionMNIST' or 'MNIST', not {name!r}.")
    batch_size, seed = integer("batch_size", batch_size), integer("seed", seed, least=0)
    resize, num_train, num_test = (
        None if value is None else integer(what, value)
        for what, value in (
            ("resize", resize),
            ("num_train", num_train),
            ("num_test", num_test),
        )
    )
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
            say_once(f"{error}. Drawings stand in for it.")
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
    for what, images, value in (
        ("num_train", train, num_train),
        ("num_test", test, num_test),
    ):
        if value is not None and value > len(images):
            raise ValueError(
                f"{what} is {value}, but there are only {len(images)} ({title})."
            )
    say_once(f"{title}: {len(train)} training and {len(test)} test images, {origin}")
    return Batches(train, batch_size, seed=seed), Batches(test, batch_size)


def _checked_source(source: str | None) -> str:
    """The argument, else ``D2L_MGPU_SOURCE``, else 'auto'."""
    said_by = "source"
    if source is None:
        source, said_by = os.environ.get("D2L_MGPU_SOURCE") or "auto", "D2L_MGPU_SOURCE"
    if source not in ("auto", "real", "generated"):
        raise ValueError(
            f"{said_by} must be 'auto', 'real' or 'generated', not {source!r}."
        )
    return source


def _drawings(count: int | None, train: bool) -> real_images.Part:
    """The first `count` training or test drawings, of 12,000 or 2,000: copies, because
    the next caller must not see what this one does to them."""
    total = 12_000 if train else 2_000
    images, labels = _drawn(min(count or total, total), train=train)
    return torch.tensor(images), torch.tensor(labels)


_drawn = lru_cache(maxsize=4)(garments.generate)  # each set is drawn once
