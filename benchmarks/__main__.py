"""Run benchmarks: `python -m benchmarks`, or `python -m benchmarks ring buckets` for some."""

import importlib
import sys

from benchmarks import results

FAMILIES = {
    "scratch": ("scratch_step", "rows"),
    "ddp": ("data_parallel", "ddp_rows"),
    "buckets": ("data_parallel", "bucket_rows"),
    "ring": ("all_reduce", "ring_rows"),
    "shared": ("all_reduce", "shared_rows"),
    "epoch": ("epoch", "rows"),
    "launch": ("launches", "rows"),
    "build": ("build", "rows"),
}
USUAL = [name for name in FAMILIES if name != "build"]  # which takes half an hour alone


def main(names: list[str]) -> None:
    """Measure these families, write what was found, and print the table of all there is."""
    if unknown := [name for name in names if name not in FAMILIES]:
        sys.exit(f"There is no benchmark {unknown[0]!r}; there are {', '.join(FAMILIES)}.")
    for name in names or USUAL:
        print(f"{name} ...", file=sys.stderr, flush=True)
        module, function = FAMILIES[name]
        results.write(name, getattr(importlib.import_module(f"benchmarks.{module}"), function)())
    print(results.table(results.read()))


if __name__ == "__main__":
    main(sys.argv[1:])
