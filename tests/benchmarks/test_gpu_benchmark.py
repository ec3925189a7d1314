"""The script for machines with a GPU runs, on a few images and without graphs, where there is none.

How long anything takes is not looked at.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch
from torch.utils import collect_env

from benchmarks import gpu, results
from benchmarks.on_gpu import notebooks
from benchmarks.on_gpu.setting import Findings, Setting
from benchmarks.pairs import judged
from tests.support import ROOT

HERE = Setting(torch.device("cpu"), quick=True)


def test_parts_of_several_calls_add_up_and_each_says_where_it_was_measured(tmp_path: Path) -> None:
    results.add("gpu", "queue", {"facts": {"a": 1}}, tmp_path)
    for ratio in (2.0, 9.0):
        row = judged("gpu epoch", [(ratio, 1.0, 1.0)] * 3)
        results.add("gpu", "epoch", {"rows": [row]}, tmp_path)
    found = results.parts(tmp_path / "gpu.json")
    assert list(found) == ["queue", "epoch"] and found["queue"]["facts"] == {"a": 1}
    assert all(part["machine"]["torch"] == torch.__version__ for part in found.values())
    (row,) = results.read(tmp_path)
    assert row["ratio"] == 9.0 and row["machine"] == found["epoch"]["machine"]


def test_a_gpu_is_recorded_with_its_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert results.machine()["gpu"] is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    memory = SimpleNamespace(total_memory=2**34)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: memory)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 30, 7))
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 92600)
    monkeypatch.setattr(collect_env, "get_nvidia_driver_version", lambda run: "580.1")
    found = results.machine()
    assert (found["gpu"], found["gpus"], found["gpu memory, bytes"]) == ("a GPU", 2, 2**34)
    assert (found["driver"], found["NCCL"]) == ("580.1", "2.30.7")
    assert found["cuDNN"] == 92600 and {"CUDA", "torch", "python", "date"} <= found.keys()


def test_a_part_that_fails_leaves_its_error_and_one_that_hangs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(s: Setting) -> Findings:
        raise ValueError("no such kernel")

    monkeypatch.setitem(gpu.PARTS, "queue", (fails, 1.0))
    gpu.take("queue", HERE, tmp_path)
    gpu.run("trace", HERE, tmp_path, 0.01)
    found = results.parts(tmp_path / "gpu.json")
    assert found["queue"]["wrong"][-1] == "ValueError: no such kernel"
    assert found["trace"]["wrong"] == ["The part did not end within 0 s."]


def test_all_parts_together_get_nine_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr(gpu, "run", lambda name, s, _, most: given.append((name, s.seconds, most)))
    gpu.run_all(list(gpu.PARTS), HERE, Path())
    gpu.run_all(["epoch"], HERE, Path())
    assert [name for name, _, _ in given] == [*gpu.PARTS, "epoch"]
    assert all(seconds < most <= 540 for _, seconds, most in given)
    assert given[-1][1] > given[list(gpu.PARTS).index("epoch")][1]  # alone, it has more


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--device", "cpu"], "only a GPU is measured: add --quick"),
        (["rows", "--quick"], "there is no part 'rows'; there are ranks, queue"),
    ],
)
def test_figures_of_a_cpu_are_not_recorded_as_those_of_a_gpu(
    arguments: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu", *arguments])
    with pytest.raises(SystemExit):
        gpu.main()
    assert sentence in capsys.readouterr().err


@pytest.mark.slow
def test_a_notebook_that_fails_names_its_cell_and_one_that_hangs_is_ended(tmp_path: Path) -> None:
    for name, sources in {
        "fails": ["x = 1", "assert x == 2, 'x'"],
        "hangs": ["while 1: pass"],
    }.items():
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
    failed = notebooks.executed(tmp_path / "fails.ipynb", 60)
    assert failed["cell"] == 1 and failed["wrong"] == "AssertionError: x"
    assert notebooks.executed(tmp_path / "hangs.ipynb", 5)["wrong"] == "not done after 5 s"


@pytest.mark.slow
def test_the_script_for_a_gpu_runs_all_its_parts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--quick"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--folder", str(tmp_path), "--trace", str(tmp_path / "chrome.trace")],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    parts = results.parts(tmp_path / "gpu.json")
    assert list(parts) == list(gpu.PARTS) and not any(part["wrong"] for part in parts.values())
    rows = results.read(tmp_path)
    assert [(row["row"], row["name"]) for row in rows] == [(7, "gpu epoch"), (8, "gpu graph")]
    assert all(row["ratio"] > 0 and row["pairs"] == 2 for row in rows)
    facts = rows[0]["facts"]
    assert facts["peak FLOP/s"] > 0 and facts["share of peak"] > 0 and "way" in facts
    for world_size in ("1", "2"):
        found = parts["ranks"]["facts"][world_size]
        assert {"DDP", "Bucketed", "all-reduce ring", "all-reduce of gloo"} <= found.keys(), found
    assert parts["notebooks"]["facts"].keys() == set(notebooks.QUICK)
    assert any("convolution_backward" in line for line in parts["trace"]["facts"]["top"])
    assert json.loads((tmp_path / "chrome.trace").read_text())["traceEvents"]
    assert all(times["done"] > 0 for times in parts["queue"]["facts"].values())
