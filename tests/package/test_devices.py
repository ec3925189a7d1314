"""k devices for everyone: accelerators where there are enough, replicas otherwise."""

import pytest
import torch

from d2l_mgpu import describe, get_devices, synchronize


@pytest.fixture
def machine_with(monkeypatch):
    """Pretend that `torch.accelerator` finds `count` accelerators of type `kind`."""

    def pretend(count: int, kind: str = "cuda") -> None:
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)
        monkeypatch.setattr(
            torch.accelerator, "current_accelerator", lambda *_, **__: torch.device(kind)
        )

    return pretend


@pytest.mark.parametrize(
    ("count", "kind", "asked", "line"),
    [
        (0, "cuda", 1, "cpu"),
        (0, "cuda", 2, "2 replicas on cpu"),
        (1, "cuda", 1, "cuda:0"),
        (1, "cuda", 3, "3 replicas on cuda:0"),
        (2, "cuda", 2, "cuda:0, cuda:1"),
        (4, "xpu", 3, "xpu:0, xpu:1, xpu:2"),
        (1, "mps", 1, "mps:0"),
        (1, "mps", 2, "2 replicas on cpu"),
    ],
)
def test_as_many_devices_as_asked_and_one_line_that_says_which(
    machine_with, capsys, count, kind, asked, line
):
    machine_with(count, kind)
    devices = get_devices(asked)
    assert len(devices) == asked
    assert describe(devices) == line
    assert capsys.readouterr().out == f"Running on {line}\n"


def test_quiet_prints_nothing(capsys):
    get_devices(2, quiet=True)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("asked", [0, -1, 2.0, "2", None, True])
def test_what_is_not_a_positive_integer_is_refused_with_what_was_asked_and_what_there_is(asked):
    with pytest.raises(ValueError, match=r"at least 1.*machine has \d+ accelerator") as error:
        get_devices(asked)
    assert repr(asked) in str(error.value)


def test_synchronize_waits_once_for_each_accelerator_and_never_for_the_cpu(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    cuda = torch.device("cuda", 0)
    synchronize([cuda, cuda, torch.device("cpu")])
    assert waited == [cuda]
