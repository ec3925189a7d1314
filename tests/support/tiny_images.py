"""A data set of 50 images, as the files that torchvision looks for."""

from pathlib import Path

import numpy as np

FILES = [
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]


def idx(array: np.ndarray) -> bytes:
    """The IDX file of an array of bytes."""
    shape = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes((0, 0, 8, array.ndim)) + shape + array.astype(np.uint8).tobytes()


def tiny_set() -> dict[str, bytes]:
    """The four files of a data set with 30 training and 20 test images."""
    files = []
    for n in (30, 20):
        files.append(idx(np.arange(n * 784).reshape(n, 28, 28) % 251))
        files.append(idx(np.arange(n) % 10))
    return dict(zip(FILES, files, strict=True))


def put(folder: Path, name: str = "FashionMNIST") -> Path:
    """Write the tiny set where torchvision looks for it; returns the folder of the files."""
    raw = folder / name / "raw"
    raw.mkdir(parents=True)
    for filename, content in tiny_set().items():
        (raw / filename).write_bytes(content)
    return raw
