"""What a run says: rank 0 for all, in lines of JSON that any reader of JSON understands."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from d2l_mgpu import Epoch, Group
from d2l_mgpu.train.report import Report


def report(rank: int, events: Path | None = None) -> Report:
    return Report(Group(rank, 2, torch.device("cpu"), "here"), events, progress=True)


def parsed(text: str) -> list[Any]:
    return [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]


@pytest.mark.parametrize("loss", [0.5, math.nan, math.inf, -math.inf])
def test_an_epoch_is_a_line_and_an_event_and_what_json_cannot_say_is_null(
    loss: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    epoch = Epoch(3, loss=loss, accuracy=0.25, seconds=1.5)
    for rank in (0, 1):
        report(rank, tmp_path / "events").epoch(epoch, step=12)
    said = {"epoch": 3, "loss": loss if loss == 0.5 else None, "accuracy": 0.25, "seconds": 1.5}
    said["world_size"] = 2
    out, err = capsys.readouterr()
    assert parsed(out) == [said] and err == ""
    events = (tmp_path / "events").read_text()
    assert parsed(events) == [{"event": "epoch", "step": 12, **said}]


def test_ranks_append_to_one_file_of_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 1):
        one = report(rank, tmp_path / "events")
        one.say(f"rank {rank} says")
        one.log("start", rank=rank)
        one.log_once("end", rank=rank)
    starts = [{"event": "start", "rank": rank} for rank in (0, 1)]
    starts.insert(1, {"event": "end", "rank": 0})
    assert parsed((tmp_path / "events").read_text()) == starts
    assert capsys.readouterr() == ("", "rank 0 says\n")


def test_without_a_file_there_are_no_events_and_without_a_terminal_no_bar(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report(0).log("start")
    with report(0).bar(3, 10) as bar:
        bar.update()
    assert capsys.readouterr() == ("", "")
