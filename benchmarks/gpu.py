"""All that only a GPU can tell, in calls of at most nine minutes.

    python -m benchmarks.gpu             # all parts
    python -m benchmarks.gpu epoch       # one of them, which has the nine minutes to itself

It prints what it finds on the way and adds each part to `results/gpu.json`. A part that fails, or
takes too long, leaves there why, and the others go on; the exit code is then 1. With `--device cpu
--quick` the same code runs on a few images, without graphs: to see that it works, not how fast.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks import results
from benchmarks.on_gpu import epoch, graph, notebooks, queueing, ranks, tracing
from benchmarks.on_gpu.setting import Findings, Setting

MINUTES = 9.0
PARTS: dict[str, tuple[Callable[[Setting], Findings], float]] = {  # and its share of the time
    "ranks": (ranks.find, 1.0),
    "queue": (queueing.find, 0.5),
    "trace": (tracing.find, 0.5),
    "graph": (graph.find, 1.5),  # row 8
    "epoch": (epoch.find, 3.5),  # row 7
    "notebooks": (notebooks.find, 3.0),
}
SLACK = 0.85  # what a part may plan with, of its share


def take(name: str, s: Setting, folder: Path) -> None:
    """Run a part and record what it found, or its error."""
    start = time.monotonic()
    content: dict[str, Any]
    try:
        content = asdict(PARTS[name][0](s))
    except Exception:
        content = {"wrong": traceback.format_exc().splitlines()}
    results.add("gpu", name, {"seconds": round(time.monotonic() - start, 1)} | content, folder)


def run(name: str, s: Setting, folder: Path, deadline: float) -> None:
    """Run a part in a process of its own, since an error of CUDA spoils the process that it is in,
    and a collective that hangs must not take the time of the others."""
    # Not by multiprocessing: there, the published loader would start its workers in another way.
    command = [sys.executable, "-m", "benchmarks.gpu", name, "--seconds", f"{s.seconds:.0f}"]
    command += ["--device", str(s.device), "--folder", str(folder)]
    command += (["--quick"] if s.quick else []) + (["--trace", str(s.trace)] if s.trace else [])
    try:
        code = subprocess.run(command, timeout=deadline).returncode
        why = f"ended with exit code {code}"
    except subprocess.TimeoutExpired:
        code, why = 1, f"did not end within {deadline:.0f} s"
    if code:
        results.add("gpu", name, {"wrong": [f"The part {why}."]}, folder)


def run_all(names: list[str], s: Setting, folder: Path) -> None:
    """Run the parts in turn. What one leaves of its share, the next may use; each may take twice
    its share, but none more than is left of the nine minutes."""
    end = time.monotonic() + 60 * MINUTES
    for i, name in enumerate(names):
        print(f"== {name}", flush=True)
        left = end - time.monotonic()
        share = left * PARTS[name][1] / sum(PARTS[each][1] for each in names[i:])
        s.seconds = SLACK * share
        run(name, s, folder, min(left, 2 * share))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="a few images, to try the code")
    parser.add_argument("--folder", type=Path, help="for gpu.json; with --quick a temporary one")
    parser.add_argument("--trace", type=Path, help="a file for the Chrome trace of the part trace")
    parser.add_argument(
        "--seconds", type=float, help=argparse.SUPPRESS
    )  # for a part that run starts
    options = parser.parse_args()
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}.")
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("there is no NVIDIA GPU here; --device cpu --quick only tries the code.")
    if device.type != "cuda" and not options.quick:
        parser.error("only a GPU is measured: add --quick to try the code elsewhere.")
    if device.type == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # ranks and notebooks look for devices themselves
    # What is only tried must not be taken for a result, so it does not get into their folder.
    folder = options.folder or (
        Path(tempfile.mkdtemp(prefix="gpu-benchmark-")) if options.quick else results.FOLDER
    )
    names = [name for name in PARTS if name in options.parts or not options.parts]
    s = Setting(device, options.quick, options.seconds or 60 * MINUTES, options.trace)
    if options.seconds:
        take(names[0], s, folder)
        return 0
    run_all(names, s, folder)

    path = folder / "gpu.json"
    found = results.parts(path)
    if rows := [row for name in names for row in found[name].get("rows", ())]:
        print(results.table(rows))
    wrong = [f"{name}: {line}" for name in names for line in found[name]["wrong"]]
    print(*wrong, path, sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
