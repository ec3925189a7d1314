"""Where the tensors of a checkpoint lie, in plain numbers, and how they are read
without risk.

`torch.distributed.checkpoint` writes tensors one behind the other into `__0_0.distcp`,
as `torch.save` does, and where they are into `.metadata`. That is a pickle, and to read
a pickle is to run the code in it. So it is left to other programs: we keep what it says
in `checkpoint.json`.
"""

import io
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata

from d2l_mgpu.train.checksums import CheckpointError

Place = list[Any]  # [name of the file, first byte, number of bytes]


def places(metadata: Metadata) -> dict[str, Place]:
    """Return where each tensor lies that `torch.distributed.checkpoint.save` has
    written."""
    parts = metadata.storage_data.items()
    return {
        index.fqn: [part.relative_path, part.offset, part.length]
        for index, part in parts
    }


def are_places(found: object, files: dict[str, str]) -> bool:
    """Whether `found` says of each name where in one of `files` a tensor lies."""
    return isinstance(found, dict) and all(
        _is_place(place, files) for place in found.values()
    )


def _is_place(place: object, files: dict[str, str]) -> bool:
    match place:
        case [str(name), int(first), int(size)]:
            return name in files and first >= 0 and size >= 0
    return False


def read(folder: Path, name: str, place: Place) -> Tensor:
    """Return the tensor `name` that lies at `place` in `folder`, on the CPU.

    Raises CheckpointError when it cannot be read, and when there is anything but a
    tensor.
    """
    file, first, size = folder / place[0], *place[1:]
    try:
        with file.open("rb") as stream:
            stream.seek(first)
            content = io.BytesIO(stream.read(size))
        tensor = torch.load(content, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}.") from None
    except Exception:  # what torch raises depends on what it finds
        tensor = None
    dense = type(tensor) is Tensor and tensor.layout is torch.strided
    if not dense or tensor.device.type != "cpu":
        raise CheckpointError(f"{file} holds no tensor where {name} should be.")
    return tensor
