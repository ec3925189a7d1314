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

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpu": gpu,
        "python": platform.python_version(),
        "torch": torch.__version__,
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


def write(family: str, rows: Sequence[dict[str, Any]], folder: Path = FOLDER) -> Path:
    """Write what was measured of one family; the files of the others stay as they are."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{family}.json"
    text = json.dumps({"machine": machine(), "rows": list(rows)}, indent=1, allow_nan=False)
    new = path.with_suffix(".new")
    new.write_text(text + "\n")
    new.replace(path)  # whoever reads it finds the old results or the new ones
    return path


def read(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The rows of all families in their order, each with the `machine` that it was measured on.

    A machine without scipy leaves the intervals to the one that reads its results.
    """
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        rows += [{**row, "machine": found["machine"]} for row in found["rows"]]
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
