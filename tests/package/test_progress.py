"""Progress is shown to those who watch, and changes nothing of what is gone through."""

import sys
from types import SimpleNamespace

import pytest
from torch import nn

from d2l_mgpu import scratch
from d2l_mgpu.concise import train as train_concise
from d2l_mgpu.progress import is_watched, with_progress
from tests.package.test_scratch import small_data


def use_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, standard error is a terminal."""
    monkeypatch.delenv("TQDM_DISABLE")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_a_log_and_the_execution_of_the_book_stay_free_of_it(monkeypatch, capsys):
    pairs = [(1, 2), (3, 4)]
    assert not is_watched() and list(with_progress(pairs, 1)) == pairs
    monkeypatch.delenv("TQDM_DISABLE")
    assert not is_watched() and list(with_progress(pairs, 1)) == pairs
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch, capsys):
    use_terminal(monkeypatch)
    pairs = [(1, 2), (3, 4)]
    assert is_watched() and list(with_progress(pairs, 7)) == pairs
    shown = capsys.readouterr().err
    assert "epoch 7:   0%" in shown and shown.endswith("\r")
    assert list(with_progress(iter(pairs), 7)) == pairs  # nobody knows how many


def test_a_notebook_is_watched(monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE")
    assert not is_watched()
    shell = SimpleNamespace(kernel="ours")
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert is_watched()


def test_data_that_are_wrong_are_named_with_a_bar_too(monkeypatch):
    use_terminal(monkeypatch)
    with pytest.raises(ValueError, match="a list, holds no batch"):
        list(with_progress([], 1))


def test_training_shows_it(monkeypatch, capsys):
    use_terminal(monkeypatch)
    scratch.train(1, 96, 0.1, num_epochs=1, load_data=small_data)
    assert "epoch 1:" in capsys.readouterr().err
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    train_concise(net, 2, 96, 0.1, num_epochs=2, load_data=small_data)
    out, err = capsys.readouterr()
    assert "[rank 0] epoch 1: loss" in out and "[rank 0] epoch 2: loss" in out and err == ""
