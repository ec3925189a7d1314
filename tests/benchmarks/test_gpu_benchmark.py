"""The script for machines with a GPU runs, on a few images and without graphs, where there is none.

How long anything takes is not looked at.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT


@pytest.mark.slow
def test_the_script_for_a_gpu_measures_both_rows(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--quick"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "gpu.json").read_text())["rows"]
    assert [(row["row"], row["name"]) for row in rows] == [(7, "gpu epoch"), (8, "gpu graph")]
    assert all(row["ratio"] > 0 and row["pairs"] == 2 for row in rows)
    facts = rows[0]["facts"]
    assert facts["peak FLOP/s"] > 0 and facts["share of peak"] > 0 and "way" in facts
    for world_size in ("1", "2"):
        found = facts["ranks"][world_size]
        assert {"DDP", "Bucketed", "all-reduce ring"} <= found.keys(), found
        assert max(found.values()) < 1e-6
