"""What `d2l_mgpu.train` answers to options that cannot be right, and what `--help` lists."""

from collections.abc import Callable

import pytest

from d2l_mgpu.train import main

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
        ("--timeout 0", "--timeout: '0' is not a number above 0"),
        ("--momentum 1", "--momentum: '1' is not a number from 0 to below 1"),
        ("--weight-decay -1", "--weight-decay: '-1' is not a number of at least 0"),
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


def test_help_lists_every_option_with_its_default(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    text = capfd.readouterr().out
    assert ended.value.code == 0
    assert "torchrun --nproc-per-node=2" in text
    assert "(default: 256)" in text and "None" not in text
