"""A process group says what cannot be right, and leaves signals as it found them."""

import re
import signal
from collections.abc import Callable

import pytest
import torch.distributed as dist

from d2l_mgpu import process_group
from d2l_mgpu.processes.joining import agree_on
from tests.package.train.conftest import answer  # noqa: F401 (a fixture)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e300, 1_000_001])
def test_a_timeout_that_cannot_be_right(timeout: float) -> None:
    message = re.escape(f"timeout must be above 0 and up to 1000000 seconds, not {timeout!r}.")
    with pytest.raises(ValueError, match=message), process_group(timeout):
        pass


@pytest.mark.parametrize("timeout", [0.5, 1_000_000])
def test_a_timeout_that_can(timeout: float) -> None:
    with process_group(timeout) as group:
        assert group.any_rank(True) and not group.any_rank(False) and not group.all_stop()


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({}, "but LOCAL_RANK is not set and LOCAL_WORLD_SIZE is not set: unset it, or start"),
        ({"LOCAL_RANK": "0"}, "but LOCAL_RANK is 0 and LOCAL_WORLD_SIZE is not set: unset"),
        ({"LOCAL_RANK": "-1", "LOCAL_WORLD_SIZE": "1"}, "but LOCAL_RANK is -1 and"),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "1"}, "but LOCAL_RANK is 1 and"),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, "variable RANK expected, but not set"),
    ],
)
def test_an_environment_that_is_not_torchruns(
    variables: dict[str, str],
    sentence: str,
    answer: Callable[[list[str]], str],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "none", **variables}.items():
        monkeypatch.setenv(name, value)
    assert sentence in answer([])


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_ranks_that_would_send_in_different_ways_say_so(rank: int) -> None:
    store, ways = dist.HashStore(), ["gloo", "gloo", "cpu:gloo,cuda:nccl"]
    for peer, backend in enumerate(ways):
        store.set(f"backend/{peer}", backend)
    if rank == 1:  # agrees with rank 0, and waits for the others
        agree_on(ways[rank], store, rank, 3)
        return
    peer = 2 - rank
    says = f"^Rank {rank} would send by {ways[rank]}, but rank {peer} by {ways[peer]}: all nodes"
    with pytest.raises(ValueError, match=says):
        agree_on(ways[rank], store, rank, 3)


def test_the_end_of_the_terminal_asks_for_a_stop_unless_nohup_was_typed() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        for ignored in (False, True):
            if ignored:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            with process_group(60) as group:
                signal.raise_signal(signal.SIGHUP)
                assert group.all_stop() is not ignored
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signals_are_as_before_unless_the_program_has_changed_them() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with process_group(60) as group:
        signal.raise_signal(signal.SIGTERM)
        assert group.all_stop()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    with process_group(60):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as a program that ends now
    try:
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before[0])
