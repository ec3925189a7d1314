"""The plain scripts of `examples/`: two processes under torchrun end with one device's weights.

They run as a reader types them, on the CPU. Their losses are float32, so a bound takes the place of
equality: over 48 steps the rounding of sums stays below 1e-5 of a weight, and a fault above 1e-3.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from d2l_mgpu import largest_difference
from tests.support import ROOT
from tests.support.runs import TORCHRUN

ONE_GPU, DDP = ROOT / "examples" / "one_gpu.py", ROOT / "examples" / "ddp.py"
TWO_PROCESSES = [*TORCHRUN, "--nproc-per-node=2"]


def weights(folder: Path, script: Path, *command: str) -> list[torch.Tensor]:
    """Run `script` in `folder`, on the CPU, and return the weights that it saves there."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command, str(script)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch ") == 3  # one process prints
    return list(torch.load(folder / f"{script.stem}.pt").values())


@pytest.fixture(scope="module")
def of_one_device(tmp_path_factory: pytest.TempPathFactory) -> list[torch.Tensor]:
    return weights(tmp_path_factory.mktemp("one"), ONE_GPU)


def test_two_processes_end_with_the_weights_of_one_device(
    of_one_device: list[torch.Tensor], tmp_path: Path
) -> None:
    assert largest_difference(weights(tmp_path, DDP, *TWO_PROCESSES), of_one_device) < 1e-5


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("replica = DistributedDataParallel(net)", "replica = net"),
        ("    sampler.set_epoch(epoch)\n", ""),
    ],
    ids=["without DDP", "without set_epoch"],
)
def test_a_script_without_this_line_ends_elsewhere(
    of_one_device: list[torch.Tensor], tmp_path: Path, right: str, wrong: str
) -> None:
    source = DDP.read_text()
    assert source.count(right) == 1
    script = tmp_path / DDP.name
    script.write_text(source.replace(right, wrong))
    assert largest_difference(weights(tmp_path, script, *TWO_PROCESSES), of_one_device) > 1e-3
