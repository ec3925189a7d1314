"""One place says on how many cores this process and those that it starts compute."""

import os
import subprocess
import sys

import pytest
import torch

from d2l_mgpu import launch, limit_threads
from tests.support.runs import TORCHRUN

COUNT = "import torch; print(torch.get_num_threads())"


@pytest.fixture(autouse=True)
def threads_as_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # is set back afterwards
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_this_process_and_a_program_that_it_starts_compute_on_so_many_cores(num_threads: int):
    limit_threads(num_threads)
    assert torch.get_num_threads() == num_threads
    assert subprocess.check_output([sys.executable, "-c", COUNT], text=True) == f"{num_threads}\n"


def test_ranks_and_what_they_start_share_the_cores_of_their_caller():
    limit_threads(4)
    seen = launch(lambda: (torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]), num_devices=2)
    assert seen == [(2, "2")] * 2


def test_torchrun_with_one_process_respects_what_is_set(tmp_path):
    (tmp_path / "count.py").write_text(COUNT)
    limit_threads()
    one = [sys.executable, *TORCHRUN, "--nproc-per-node=1", str(tmp_path / "count.py")]
    assert subprocess.check_output(one, text=True, stderr=subprocess.DEVNULL) == "1\n"
