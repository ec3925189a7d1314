"""Bits on a GPU: what is switched on and off is so inside, and as before outside."""

import os

import pytest
import torch

from d2l_mgpu import deterministic, get_params, prove_equals_one_device, train_batch, without_tf32
from d2l_mgpu.splitting import SPLITS, Split, prove_split_equals_one_device
from d2l_mgpu.train import main

CPU = torch.device("cpu")


def tf32() -> tuple[bool, str]:
    return torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()


def settings() -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.benchmark,
    )


@pytest.fixture
def rounded(monkeypatch: pytest.MonkeyPatch) -> tuple[bool, str]:
    """TF32 wherever a GPU has it."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield tf32()
    torch.set_float32_matmul_precision(before)


def test_inside_there_is_no_tf32_and_afterwards_it_is_as_before(rounded):
    with pytest.raises(ZeroDivisionError), without_tf32():
        assert tf32() == (False, "highest")
        raise ZeroDivisionError
    assert tf32() == rounded == (True, "high")


def test_proofs_run_without_tf32(rounded):
    seen = []

    def step(*arguments):
        seen.append(tf32())
        return train_batch(*arguments)

    def gradients(*arguments):
        seen.append(tf32())
        return SPLITS["data"].gradients(*arguments)

    prove_equals_one_device(step, get_params, [CPU] * 2, num_steps=1)
    data = SPLITS["data"]
    prove_split_equals_one_device(Split(data.place, gradients, data.join), [CPU] * 2, num_steps=1)
    assert seen == [(False, "highest")] * 2 and tf32() == rounded


def test_inside_runs_repeat_and_afterwards_it_is_as_before(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    before = settings()
    with deterministic():
        assert settings() == (True, False, False)
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert settings() == before == (False, False, True)


def test_the_training_command_repeats_bits_if_asked_to(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "d2l_mgpu.train.command.TrainingRun.train", lambda run: seen.append(settings()) or []
    )
    small = ["--source", "generated", "--num-train", "4", "--num-test", "2"]
    main([*small, "--deterministic"])
    main(small)
    assert seen == [(True, False, False), (False, False, False)]
