"""Results on disk, one JSON file a family of comparisons, and as a table in the terminal."""

import json
import os
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent / "results"
CPU_INFO = Path("/proc/cpuinfo")
HEAD = ("row", "comparison", "ratio", "95 % interval", "goal", "verdict", "A/A", "pairs", "seconds")


def processor() -> str:
    """The model of the processor, as the system names it."""
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return (models or [platform.processor() or platform.machine()])[0]


def machine() -> dict[str, Any]:
    """What was measured on, and when."""
    import torch

    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpu": None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        **gpu(),
    }


def gpu() -> dict[str, Any]:
    """What stands behind the numbers of an NVIDIA GPU; nothing where there is none."""
    import torch
    from torch.utils import collect_env

    if not torch.cuda.is_available():
        return {}
    return {
        "gpu": torch.cuda.get_device_name(),
        "gpus": torch.cuda.device_count(),
        "gpu memory, bytes": torch.cuda.get_device_properties(0).total_memory,
        "driver": collect_env.get_nvidia_driver_version(collect_env.run),
        "CUDA": torch.version.cuda,
        "NCCL": ".".join(map(str, torch.cuda.nccl.version())),
        "cuDNN": torch.backends.cudnn.version(),
    }


def interval(ratios: np.ndarray) -> list[float] | None:
    """A 95 % interval of the median, by bootstrap (Efron, 1979); None where scipy is missing."""
    if len(ratios) < 2:  # nothing to draw from
        return [float(ratios[0])] * 2
    try:
        from scipy.stats import bootstrap
    except ImportError:
        return None
    found = bootstrap((ratios,), np.median, method="percentile", rng=np.random.default_rng(0))
    return [float(found.confidence_interval.low), float(found.confidence_interval.high)]


def save(path: Path, content: Any) -> None:
    """Write a file that is read as it was or as it is now, and never in between."""
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    new.replace(path)


def write(family: str, rows: Sequence[dict[str, Any]], folder: Path = FOLDER) -> Path:
    """Write what was measured of one family; the files of the others stay as they are."""
    path = folder / f"{family}.json"
    save(path, {"machine": machine(), "rows": list(rows)})
    return path


def add(family: str, part: str, content: dict[str, Any], folder: Path = FOLDER) -> Path:
    """Write one part of a family, with the machine; its other parts stay as they are."""
    path = folder / f"{family}.json"
    save(path, {"parts": parts(path) | {part: {"machine": machine(), **content}}})
    return path


def parts(path: Path) -> dict[str, dict[str, Any]]:
    """What `add` has written so far."""
    return json.loads(path.read_text())["parts"] if path.exists() else {}


def read(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The rows of all families in their order, each with the `machine` that it was measured on.

    A machine without scipy leaves the intervals to the one that reads its results.
    """
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        for part in found.get("parts", {"all of it": found}).values():
            rows += [{**row, "machine": part["machine"]} for row in part.get("rows", ())]
    for row in rows:
        if row.get("interval", ()) is None:
            first, second, _ = np.asarray(row["rounds"]).T
            row["interval"] = interval(first / second)
    return sorted(rows, key=lambda row: row["row"])


def cells(row: dict[str, Any]) -> list[str]:
    """A row as text."""
    start = [str(row["row"]), row["name"]]
    if row["verdict"] == "refused":
        return [*start, "-", "-", "-", f"refused: {row['why']}", "-", "-", "-"]
    ends = [f"{end:.3f}" for end in row["interval"] or ()]
    first, second = row["seconds"]
    return [
        *start,
        f"{row['ratio']:.3f}",
        " - ".join(ends) or "needs scipy",
        f"{row['sense']} {row['goal']:g}",
        row["verdict"],
        f"{row['control']:.3f}",
        str(row["pairs"]),
        f"{first:.4g} / {second:.4g}",
    ]


def table(rows: Iterable[dict[str, Any]]) -> str:
    """All rows, aligned."""
    lines = [list(HEAD), *map(cells, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
