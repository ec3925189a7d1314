"""What `d2l_mgpu.train` answers to options that cannot be right, and what `--help` lists."""

import argparse
import contextlib
import inspect
import io
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2l_mgpu.train import main
from d2l_mgpu.train.options import read

SECONDS = "is not a number above 0 and up to 1000000"
COUNT = "is not a whole number from 1 to 2^31 - 1"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--model alexnet", "--model: invalid choice: 'alexnet' (choose from"),
        ("--dataset CIFAR", "--dataset: invalid choice: 'CIFAR' (choose from"),
        ("--source web", "--source: invalid choice: 'web' (choose from"),
        ("--schedule step", "--schedule: invalid choice: 'step' (choose from"),
        ("--resume yes", "--resume: invalid choice: 'yes' (choose from"),
        *((f"--num-train {n}", f"--num-train: '{n}' {COUNT}") for n in ("0", "-1", "1.5", "all")),
        ("--num-test 0", f"--num-test: '0' {COUNT}"),
        ("--epochs 0", f"--epochs: '0' {COUNT}"),
        ("--batch-size x", f"--batch-size: 'x' {COUNT}"),
        ("--batch-size 99999999999", f"--batch-size: '99999999999' {COUNT}"),
        ("--checkpoint-dir=", "--checkpoint-dir: the name is empty; a shell variable"),
        ("--events=", "--events: the name is empty; a shell variable"),
        ("--accumulate 0", f"--accumulate: '0' {COUNT}"),
        ("--checkpoint-every 0", f"--checkpoint-every: '0' {COUNT}"),
        ("--events-every -3", f"--events-every: '-3' {COUNT}"),
        *((f"--lr {x}", f"--lr: '{x}' is not a number above 0") for x in ("0", "-1", "nan", "inf")),
        *((f"--timeout {x}", f"--timeout: '{x}' {SECONDS}") for x in ("0", "nan", "1e300")),
        ("--lr 1e308", "--lr: '1e308' is not a number above 0 and below 1e+38"),
        ("--momentum 1", "--momentum: '1' is not a number from 0 to below 1"),
        ("--weight-decay -1", "--weight-decay: '-1' is not a number from 0 to below 1e+38"),
        ("--seed -1", "--seed: '-1' is not a whole number from 0 to 2^40 - 1"),
        ("--checkpoint-every 5", "--checkpoint-every needs --checkpoint-dir"),
        ("--fall-back", "--fall-back needs --checkpoint-dir"),
        ("--fast --double", "--fast and --double exclude each other"),
        ("--checkpoint-dir", "--checkpoint-dir: expected one argument"),
        ("--check here", "unrecognized arguments: --check here"),
        ("more", "unrecognized arguments: more"),
    ],
)
def test_an_option_that_cannot_be_right(
    options: str, sentence: str, answer: Callable[[list[str]], str]
) -> None:
    assert sentence in answer(options.split())


def test_a_line_break_in_an_option_is_none_in_the_answer(
    answer: Callable[[list[str]], str],
) -> None:
    assert "unrecognized arguments: two lines;" in answer(["two\nlines"])


OPTIONS = sorted({*re.findall(r'add\("(--[a-z-]+)"', inspect.getsource(read))})
VALUES = ["lenet", "MNIST", "never", "0", "-1", "1", "1.5", "1e400", "nan", "9" * 5000, "", "--"]
words = st.sampled_from(OPTIONS) | st.sampled_from(VALUES) | st.text()
words |= st.builds("{}={}".format, st.sampled_from(OPTIONS), words)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(st.lists(words, max_size=6))
def test_whatever_is_typed_is_understood_or_refused_in_one_line(typed: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            options = read(typed, "")
        except SystemExit as ended:
            options = ended.code
    if options == 2:
        [line] = err.getvalue().splitlines()
        assert line.startswith("d2l_mgpu.train: ") and not out.getvalue()
    elif options == 0:
        assert "show this help" in out.getvalue() and not err.getvalue()
    else:
        assert isinstance(options, argparse.Namespace)
        assert not out.getvalue() and not err.getvalue()


def test_help_lists_every_option_with_its_default(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    text = capfd.readouterr().out
    assert ended.value.code == 0
    assert "torchrun --nproc-per-node=2" in text
    assert "(default: 256)" in text and "None" not in text
