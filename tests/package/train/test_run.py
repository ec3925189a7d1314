"""What a training answers to files and ranks that cannot be right: one sentence."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from d2l_mgpu import launch
from d2l_mgpu.processes.group import process_group
from d2l_mgpu.train import load_weights, main
from d2l_mgpu.train.checksums import seal
from d2l_mgpu.train.folder import one_writer
from tests.support import ROOT
from tests.support.runs import TORCHRUN

Answer = Callable[[list[str]], str]
SMALL = [
    "--source",
    "generated",
    "--num-train",
    "40",
    "--num-test",
    "10",
    "--batch-size",
    "20",
    "--epochs",
    "1",
]


def missing_folder(folder: Path) -> list[str]:
    return ["--events", str(folder / "nowhere" / "events")]


def file_for_folder(folder: Path) -> list[str]:
    (folder / "file").touch()
    return ["--checkpoint-dir", str(folder / "file")]


def pipe_for_events(folder: Path) -> list[str]:
    os.mkfifo(folder / "events")  # nobody reads it
    return ["--events", str(folder / "events")]


def pipe_for_lock(folder: Path) -> list[str]:
    (folder / "run").mkdir()
    os.mkfifo(folder / "run" / ".lock")
    return ["--checkpoint-dir", str(folder / "run")]


def trained(folder: Path, *options: str) -> list[str]:
    main([*SMALL, "--checkpoint-dir", str(folder / "run")])
    return ["--checkpoint-dir", str(folder / "run"), *options]


def damaged(folder: Path) -> list[str]:
    options = trained(folder)
    [file] = folder.glob("run/step-*/__0_0.distcp")
    file.write_bytes(b"")
    return options


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda _: ["--num-train", "99999"], r"num_train is 99999, but there are only 12000"),
        (lambda _: ["--dataset", "MNIST"], r"There is no generated MNIST"),
        (missing_folder, r"No such file or directory: '.*nowhere/events'"),
        (lambda _: ["--events", "/dev/full"], r"No space left on device: '/dev/full'"),
        (pipe_for_events, r"No such device or address: '.*/events'"),
        (pipe_for_lock, r"/run cannot take checkpoints: No such device or address\."),
        (file_for_folder, r"/file cannot take checkpoints: File exists\. Choose"),
        (lambda _: ["--checkpoint-dir", "/dev/null/run"], r"null/run cannot take .*: Not a dir"),
        (
            lambda _: ["--checkpoint-dir", "/proc/run"],
            r"/proc/run cannot take checkpoints: No such",
        ),
        (damaged, r"step-00000002/__0_0.distcp is damaged.*add --fall-back"),
        (
            lambda folder: trained(folder, "--batch-size", "10"),
            r"step-00000002 was written with batch-size 20, but this run has 10: resume with",
        ),
        (
            lambda folder: trained(folder, "--model", "resnet18"),
            r"with model lenet, but .* resnet18",
        ),
        (lambda folder: trained(folder, "--num-train", "30"), r"with images 40 of .* has 30 of"),
        (lambda folder: trained(folder, "--lr", "1"), r"with lr 0\.1, but this run has 1\.0"),
        (
            lambda folder: trained(folder, "--resume", "never"),
            r"holds step-00000002 of an earlier run, and --resume never does not touch it",
        ),
    ],
)
def test_a_file_that_cannot_be_right(
    prepare: Callable[[Path], list[str]],
    sentence: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    answer: Answer,
) -> None:
    options = [*SMALL, *prepare(tmp_path)]
    capfd.readouterr()
    assert re.search(sentence, answer(options))


def test_data_that_is_not_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setenv("D2L_MGPU_DATA", str(tmp_path))
    assert "D2L_MGPU_DATA is" in answer(["--source", "real"])
    monkeypatch.setenv("D2L_MGPU_SOURCE", "web")
    assert "D2L_MGPU_SOURCE must be" in answer([])


def of_rank_1(options: list[str]) -> str:
    """What a rank says if only rank 1 is given `options`."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        main([*SMALL, *(options if os.environ["RANK"] == "1" else [])])
    return said.getvalue().splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--num-train", "30"], "rank 1 has images 30 of .* rank 0 has 40 of .*: use the same"),
        (["--seed", "4"], "rank 1 has seed 4, but rank 0 has 0: use the same options"),
        (["--events-every", "4"], "rank 1 has events-every 4, but rank 0 has 10: use the same"),
    ],
)
def test_nodes_that_do_not_do_the_same(options: list[str], sentence: str) -> None:
    for rank, said in enumerate(launch(of_rank_1, options, num_devices=2)):
        assert re.search(f"^d2l_mgpu.train: rank {rank}: {sentence}", said)


def test_a_rank_that_alone_cannot_go_on_says_why(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    text = 'import os; from d2l_mgpu.train import main; rank = os.environ["RANK"]\n'
    program.write_text(text + f'main({SMALL} + (["--events", "/no/file"] if rank == "1" else []))')
    done = subprocess.run(
        [sys.executable, *TORCHRUN, "--nproc-per-node=2", program],
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "d2l_mgpu.train: rank 1: [Errno 2] No such file or directory: '/no/file'" in done.stderr


@pytest.mark.parametrize("output", ["/dev/full", "a pipe that nobody reads"])
def test_an_epoch_that_cannot_be_printed_is_saved(output: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "d2l_mgpu.train", *SMALL, "--no-progress"]
    with contextlib.ExitStack() as until_the_end:
        if output == "/dev/full":
            stdout = until_the_end.enter_context(open(output, "wb", buffering=0)).fileno()
        else:
            reader, stdout = os.pipe()
            os.close(reader)
            until_the_end.callback(os.close, stdout)
        done = subprocess.run(
            [*command, "--checkpoint-dir", tmp_path],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert re.search(r"^d2l_mgpu.train: .*: 'standard output'$", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr and done.returncode == 2, done.stderr
    assert load_weights(tmp_path)


def test_a_second_run_in_the_folder_of_another_is_refused(tmp_path: Path, answer: Answer) -> None:
    with process_group(60), one_writer(tmp_path / "run"):
        sentence = f"Another run writes its checkpoints here, and holds {tmp_path}/run/.lock: wait"
        assert sentence in answer([*SMALL, "--checkpoint-dir", str(tmp_path / "run")])


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.pop("sampler"),
        lambda facts: facts.update(sampler=[]),
        lambda facts: facts["sampler"].update(position="2"),
        lambda facts: facts["sampler"].update(epoch=2),
        lambda facts: facts["sampler"].popitem(),
    ],
)
def test_a_record_of_another_training_is_no_place_to_resume_from(
    change: Callable[[dict], None],
    tmp_path: Path,
    answer: Answer,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Although all checksums fit."""
    options = [*trained(tmp_path), "--epochs", "2"]
    [file] = tmp_path.glob("run/step-*/checkpoint.json")
    record = json.loads(file.read_bytes())
    change(record["facts"])
    file.unlink()
    seal(file.parent, record)
    capfd.readouterr()
    assert f"{file} is of another training" in answer([*SMALL, *options])


def test_more_epochs_are_no_mistake(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = trained(tmp_path, "--epochs", "2")
    capfd.readouterr()
    assert [epoch.number for epoch in main([*SMALL, *options])] == [2]
    assert main([*SMALL, *options]) == []
    assert "nothing is left to train" in capfd.readouterr().err
