"""`d2l_mgpu.train` as its users see it: what it prints, the same steps however it is started."""

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
import torch

from d2l_mgpu import Epoch, launch
from d2l_mgpu.proofs import TOLERANCE
from d2l_mgpu.train import Trainer, load_weights, main
from d2l_mgpu.train.folder import steps

OPTIONS = [*("--source", "generated", "--num-train", "100", "--num-test", "33")]
OPTIONS += [*("--batch-size", "34", "--epochs", "2", "--lr", "0.05", "--seed", "5")]
pytestmark = pytest.mark.timeout(300)


def train(folder: Path, *options: str) -> list[Epoch]:
    return main([*OPTIONS, "--checkpoint-dir", str(folder), *options])


def test_a_line_of_json_an_epoch_is_all_that_goes_to_standard_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    history = train(tmp_path)
    out, err = capfd.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == [
        {
            "epoch": epoch.number,
            "loss": epoch.loss,
            "accuracy": epoch.accuracy,
            "seconds": epoch.seconds,
            "world_size": 1,
        }
        for epoch in history
    ]
    assert [epoch.number for epoch in history] == [1, 2]
    assert err.startswith("Generated garments") and len(err.splitlines()) == 1


@pytest.mark.parametrize("options", [[], ["--accumulate", "3"]], ids=["", "in micro-batches"])
def test_processes_and_micro_batches_change_nothing_but_rounding(
    options: list[str], tmp_path: Path
) -> None:
    alone = train(tmp_path / "alone", "--double")
    results = launch(train, tmp_path / "three", "--double", *options, num_devices=3)
    for history in results:  # every rank knows the figures of all
        for ours, theirs in zip(history, alone, strict=True):
            assert ours.accuracy == theirs.accuracy
            assert ours.loss == pytest.approx(theirs.loss, rel=1e-12)
    ours, theirs = load_weights(tmp_path / "three"), load_weights(tmp_path / "alone")
    assert {weights.dtype for weights in theirs.values()} == {torch.float64}
    bound = 6 * TOLERANCE[torch.float64]  # two epochs of three steps
    for name, weights in theirs.items():
        torch.testing.assert_close(ours[name], weights, rtol=0, atol=bound)


def test_resnet_is_trained_as_well(tmp_path: Path) -> None:
    small = ["--model", "resnet18", "--num-train", "8", "--num-test", "4", "--batch-size", "4"]
    [epoch] = launch(train, tmp_path, *small, "--epochs", "1", num_devices=2)[0]
    assert 0 <= epoch.accuracy <= 1
    assert "3.0.bn1.running_mean" in load_weights(tmp_path)


def test_nothing_is_left_of_a_run_that_was_stopped(capfd: pytest.CaptureFixture[str]) -> None:
    """Nor of one with a mistake: the next in the same process is a run of its own."""
    threads = threading.active_count()
    for options, code in ((["--num-train", "99999"], 2), ([], 75), ([], 75)):
        with pytest.raises(SystemExit) as ended, mock.patch.object(Trainer, "finish_epoch", stop):
            main([*OPTIONS, "--no-progress", *options])
        assert ended.value.code == code
        assert not torch.distributed.is_initialized()
        assert threading.active_count() == threads


def stop(*_: object) -> Epoch:
    """In place of the end of an epoch: somebody asks this process to stop."""
    os.kill(os.getpid(), signal.SIGTERM)
    return Epoch(1, loss=0.0, accuracy=0.0, seconds=0.0)


@pytest.mark.parametrize("options", [[], ["--no-progress"]])
def test_a_progress_bar_is_drawn_where_somebody_watches(options: list[str]) -> None:
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))  # lines, columns
    done = subprocess.run(
        [sys.executable, "-m", "d2l_mgpu.train", *OPTIONS, *options],
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    shown = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2
    assert bool(re.search(r"6/6 .*step", shown)) == (not options)


def test_a_damaged_checkpoint_is_passed_over_when_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    history = train(tmp_path)
    weights = load_weights(tmp_path)
    [file] = tmp_path.glob("step-00000006/*.distcp")
    file.write_bytes(file.read_bytes()[:-1])
    capfd.readouterr()
    [again] = train(tmp_path, "--fall-back")
    assert "step-00000006/__0_0.distcp is damaged" in capfd.readouterr().err
    assert (again.loss, again.accuracy) == (history[1].loss, history[1].accuracy)
    for name, value in load_weights(tmp_path).items():
        assert torch.equal(value, weights[name])


DIVERGED = r"By step {} the loss or a weight has become NaN .* no checkpoint is written of that"


@pytest.mark.parametrize(
    ("options", "noticed", "kept"),
    [
        ([], 3, []),  # at the end of the epoch
        (["--events-every", "2"], 2, []),
        (["--checkpoint-every", "1"], 2, ["step-00000001"]),
    ],
)
def test_a_loss_that_diverges_ends_the_run_and_spares_good_checkpoints(
    options: list[str],
    noticed: int,
    kept: list[str],
    tmp_path: Path,
    answer: Callable[[list[str]], str],
) -> None:
    diverging = [*OPTIONS, "--lr", "1e30", "--checkpoint-dir", str(tmp_path), *options]
    for _ in range(2):  # from the last good step on it diverges again
        assert re.search(DIVERGED.format(noticed), answer(diverging))
        assert [path.name for path in steps(tmp_path)] == kept
    if kept:
        assert all(weight.isfinite().all() for weight in load_weights(tmp_path).values())


def diverge_on_rank_1(folder: Path) -> str:
    """What this rank says if rank 1 sees a NaN in its part of the loss."""

    def is_finite(trainer: Trainer) -> bool:
        if trainer.group.rank == 1:
            trainer.loss.fill_(float("nan"))
        return original(trainer)

    original, said = Trainer.is_finite, io.StringIO()
    with (
        mock.patch.object(Trainer, "is_finite", is_finite),
        contextlib.redirect_stderr(said),
        pytest.raises(SystemExit, match="2"),
    ):
        train(folder)
    return said.getvalue().splitlines()[-1]


def test_a_loss_that_diverges_on_one_rank_ends_all(tmp_path: Path) -> None:
    for rank, said in enumerate(launch(diverge_on_rank_1, tmp_path, num_devices=2)):
        assert re.search(f"^d2l_mgpu.train: rank {rank}: " + DIVERGED.format(3), said)


def test_a_loss_may_diverge_if_that_is_allowed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, "--lr", "1e30", "--allow-nan")
    last = capfd.readouterr().out.splitlines()[-1]
    assert json.loads(last, parse_constant=pytest.fail)["loss"] is None
    assert steps(tmp_path)[0].name == "step-00000006"


def test_a_checkpoint_older_than_an_option_is_resumed_without_it(tmp_path: Path) -> None:
    def without_fast(trainer: Trainer, folder: Path, facts: dict) -> Path:
        return save(trainer, folder, {name: facts[name] for name in facts if name != "fast"})

    save = Trainer.save
    with mock.patch.object(Trainer, "save", without_fast):
        train(tmp_path)
    assert [epoch.number for epoch in train(tmp_path, "--epochs", "3")] == [3]
    with pytest.raises(SystemExit, match="2"):
        train(tmp_path, "--epochs", "4", "--fast")
