"""The real files of Fashion-MNIST and MNIST: find them, download them, check them, read
them.

torchvision reads the files and knows their servers and checksums. This module adds what
it lacks: a download that ends (a silent server would hold torchvision for ever) and
that leaves nothing half written, and a check of what the files hold (torchvision only
looks whether they exist).
"""

import gzip
import http.client
import os
import queue
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import BinaryIO

from torch import Tensor

USUAL_FOLDER = Path(os.path.expanduser("~/.cache/d2l_mgpu"))
# seconds without an answer or a byte after which a server counts as dead
SILENCE = 10.0
GIVE_UP = 600.0  # seconds that one mirror may take for the whole data set
# bytes of a file, packed or not; the largest one that there is has 47 MB
LARGEST = 64 * 2**20

Part = tuple[Tensor, Tensor]


class DownloadError(OSError):
    """The images are not on this machine and could not be downloaded; the message says
    why."""


def find(name: str) -> Path:
    """The folder that holds the four files of data set ``name`` under ``<name>/raw``.

    That is the one that ``D2L_MGPU_DATA`` names, else the usual one, downloaded into if
    need be. Raises FileNotFoundError if ``D2L_MGPU_DATA`` lacks a file, DownloadError
    if they cannot be downloaded.
    """
    chosen = os.environ.get("D2L_MGPU_DATA")
    folder = Path(os.path.expanduser(chosen)) if chosen else USUAL_FOLDER
    missing = [path for path in _files(folder, name) if not os.path.isfile(path)]
    if missing and chosen:
        raise FileNotFoundError(
            f"D2L_MGPU_DATA is {chosen!r}, but that folder has no "
            f"{missing[0].relative_to(folder)}: put the four uncompressed files of "
            f"{name} there, or unset the variable."
        )
    if missing:
        try:
            _download(folder, name)
        except OSError as error:
            raise DownloadError(
                f"{name} is not in {shown(folder)} and could not be downloaded "
                f"({error}); connect to a network, or name the folder that holds it in "
                "D2L_MGPU_DATA"
            ) from error
    return folder


def read(folder: Path, name: str) -> tuple[Part, Part]:
    """Training and test part: images uint8 (n, 28, 28) and labels int64 (n,), in 0..9.

    Raises ValueError that names the file if one is cut short, damaged or of another
    kind.
    """
    from torchvision import datasets

    files = _files(folder, name)
    for images, labels in (files[:2], files[2:]):
        found = _count_items(images, (28, 28)), _count_items(labels, ())
        if found[0] != found[1]:
            raise _damaged(labels, f"it has {found[1]} labels for {found[0]} images")
    train, test = (
        getattr(datasets, name)(folder, train=train) for train in (True, False)
    )
    for part, path in ((train, files[1]), (test, files[3])):
        if part.targets.max() > 9:
            raise _damaged(path, f"it has the label {int(part.targets.max())}, above 9")
    return (train.data, train.targets), (test.data, test.targets)


def shown(folder: Path) -> str:
    """The folder as outputs name it: alike on every machine."""
    if os.environ.get("D2L_MGPU_DATA"):
        return "$D2L_MGPU_DATA"
    home = Path(os.path.expanduser("~"))
    return (
        f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder)
    )


def _files(folder: Path, name: str) -> list[Path]:
    """Training images and labels, test images and labels, where torchvision reads
    them."""
    return [
        folder / name / "raw" / f"{part}-{kind}-ubyte"
        for part in ("train", "t10k")
        for kind in ("images-idx3", "labels-idx1")
    ]


def _download(folder: Path, name: str) -> None:
    """Fetch all four files beside their place, from the first mirror that delivers them
    whole.

    Only then are they moved into place, so that none but whole, verified files ever
    bear a name that a later run trusts.
    """
    from torchvision import datasets

    dataset = getattr(datasets, name)
    folder.mkdir(parents=True, exist_ok=True)
    failures = []
    for mirror in dataset.mirrors:
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as temporary:
            try:
                deadline = time.monotonic() + GIVE_UP
                for filename, md5 in dataset.resources:
                    _fetch(mirror + filename, Path(temporary, filename), md5, deadline)
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{mirror}: {error}")
                continue
            for path in _files(folder, name):
                path.parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(temporary, path.name), path)
            return
    raise OSError("; ".join(failures))


def _fetch(url: str, packed: Path, md5: str, deadline: float) -> None:
    """Download one packed file, verify it and unpack it beside itself.

    Raises OSError for a file that is not the published one, or larger than ``LARGEST``.
    """
    from torchvision.datasets.utils import check_integrity
    from tqdm import tqdm

    watched = sys.stderr.isatty() or "ipykernel" in sys.modules
    with (
        _open(url) as response,
        open(packed, "wb") as file,
        tqdm(
            desc=packed.name,
            total=response.length,
            unit="B",
            unit_scale=True,
            disable=not watched,
        ) as progress,
    ):
        while chunk := response.read1(1 << 16):
            progress.update(file.write(chunk))
            _check_size(file)
            if time.monotonic() > deadline:
                raise TimeoutError(f"not complete after {GIVE_UP:.0f} s")
    if not check_integrity(packed, md5):
        raise OSError(f"{packed.name} was cut short, or is not the published file")
    with gzip.open(packed) as source, open(packed.with_suffix(""), "wb") as target:
        while chunk := source.read(1 << 16):
            target.write(chunk)
            _check_size(target)


def _check_size(file: BinaryIO) -> None:
    if file.tell() > LARGEST:
        raise OSError(f"{Path(file.name).name} is larger than {LARGEST:,} bytes")


def _open(url: str) -> http.client.HTTPResponse:
    """``urlopen`` that answers or fails within ``SILENCE`` seconds.

    Its own timeout counts anew for every address of a host and not at all while a name
    is looked up, hence the thread, which is left behind when it does not come back.
    """
    answers: queue.SimpleQueue[http.client.HTTPResponse | Exception] = (
        queue.SimpleQueue()
    )

    def ask() -> None:
        try:
            answers.put(urllib.request.urlopen(url, timeout=SILENCE))
        except Exception as error:  # whatever it is, the caller raises it
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=SILENCE)
    except queue.Empty:
        raise TimeoutError(f"no answer in {SILENCE:.0f} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _count_items(path: Path, shape: tuple[int, ...]) -> int:
    """How many items of this shape an IDX file of bytes holds, if its header tells the
    truth."""
    size = 8 + 4 * len(shape)
    with open(path, "rb") as file:
        header = file.read(size)
    if len(header) < size or header[:4] != bytes((0, 0, 8, 1 + len(shape))):
        kind = "images" if shape else "labels"
        raise _damaged(
            path, f"it does not begin like an uncompressed IDX file of {kind}"
        )
    count, *rest = (int.from_bytes(header[i : i + 4], "big") for i in range(4, size, 4))
    if tuple(rest) != shape or count < 1:
        raise _damaged(path, f"its header says {count} items of shape {tuple(rest)}")
    promised, present = count, path.stat().st_size - size
    for side in shape:
        promised *= side
    if present != promised:
        raise _damaged(
            path, f"its header promises {promised} bytes, but {present} follow"
        )
    return count


def _damaged(path: Path, what: str) -> ValueError:
    remedy = (
        "put a sound copy there, or unset D2L_MGPU_DATA"
        if os.environ.get("D2L_MGPU_DATA")
        else "delete it and load again to have it downloaded anew"
    )
    return ValueError(f"{path} is damaged: {what}; {remedy}.")
