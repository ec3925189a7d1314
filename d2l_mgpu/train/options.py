"""The command line of `d2l_mgpu.train`: what can be said, and one sentence for what cannot."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from d2l_mgpu.processes.group import LONGEST
from d2l_mgpu.train.recipe import Recipe

Number = TypeVar("Number", int, float)


def _number(
    kind: type[Number], fits: Callable[[Number], bool], wanted: str
) -> Callable[[str], Number]:
    """Return what reads a number for which `fits` holds, or says which was `wanted`."""

    def read(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not fits(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
        return value

    return read


_count = _number(int, lambda n: 1 <= n < 2**31, "a whole number from 1 to 2^31 - 1")
_seed = _number(int, lambda n: 0 <= n < 2**40, "a whole number from 0 to 2^40 - 1")
_LARGE = 1e38  # as float32 holds it
_positive = _number(float, lambda x: 0 < x < _LARGE, f"a number above 0 and below {_LARGE:g}")
_seconds = _number(float, lambda x: 0 < x <= LONGEST, f"a number above 0 and up to {LONGEST}")
_not_negative = _number(float, lambda x: 0 <= x < _LARGE, f"a number from 0 to below {_LARGE:g}")
_fraction = _number(float, lambda x: 0 <= x < 1, "a number from 0 to below 1")


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("the name is empty; a shell variable that is not set?")
    return Path(text)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the whole list of options before it."""

    def error(self, message: str) -> NoReturn:
        one_line = " ".join(message.split())  # whatever was typed
        self.exit(2, f"{self.prog}: {one_line}; --help lists the options.\n")


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of the description and adds the defaults, where there are any."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False:
            return action.help
        return super()._get_help_string(action)


def read(arguments: Sequence[str] | None, description: str | None) -> argparse.Namespace:
    """Return the options in `arguments` (of this process if None).

    Raises SystemExit(2) for bad ones.
    """
    result = _Parser(
        prog="d2l_mgpu.train",
        description=(description or "").replace("::", ":"),
        formatter_class=_Help,
        allow_abbrev=False,
    )
    add = result.add_argument_group("what to train").add_argument
    add("--model", choices=["lenet", "resnet18"], default="lenet", help="the network")
    add("--dataset", choices=["FashionMNIST", "MNIST"], default="FashionMNIST", help="the images")
    add("--source", choices=["auto", "real", "generated"],
        help="real images, drawn ones, or (auto) real ones where they can be had; "
        "without this option the variable D2L_MGPU_SOURCE decides, then auto")  # fmt: skip
    add("--num-train", type=_count, metavar="N", help="train on the first N images only")
    add("--num-test", type=_count, metavar="N", help="test on the first N images only")

    recipe, add = Recipe(), result.add_argument_group("how to train").add_argument
    add("--epochs", type=_count, default=recipe.epochs, metavar="N", help="epochs to train")
    add("--batch-size", type=_count, default=recipe.batch_size, metavar="N",
        help="examples a step, over all processes")  # fmt: skip
    add("--accumulate", type=_count, default=recipe.accumulate, metavar="N",
        help="micro-batches that each process cuts its shard into")  # fmt: skip
    add("--lr", type=_positive, default=recipe.lr, help="learning rate")
    add("--momentum", type=_fraction, default=recipe.momentum, help="of SGD, below 1")
    add("--weight-decay", type=_not_negative, default=recipe.weight_decay, help="of SGD")
    add("--schedule", choices=["constant", "cosine"], default=recipe.schedule,
        help="of the learning rate; cosine would be 0 in a step after the last")  # fmt: skip
    add("--seed", type=_seed, default=recipe.seed, help="of weights, order and random numbers")
    add("--fast", action="store_true",
        help="images on the device, channels last, bfloat16 where the device has instructions "
        "for it, on a single GPU CUDA graphs: the same steps, rounded differently")  # fmt: skip
    add("--double", action="store_true",
        help="compute in double precision: slower, for runs that are to be compared")  # fmt: skip
    add("--deterministic", action="store_true",
        help="repeat every bit on GPUs too, with slower algorithms where need be")  # fmt: skip
    add("--allow-nan", action="store_true",
        help="go on when the loss becomes NaN or infinite, which ends a run otherwise: at the next "
        "event 'step', before a checkpoint and at the end of an epoch")  # fmt: skip

    add = result.add_argument_group("checkpoints").add_argument
    add("--checkpoint-dir", type=_path, metavar="DIR",
        help="save here, and resume from here; all nodes must see it")  # fmt: skip
    add("--checkpoint-every", type=_count, metavar="STEPS",
        help="save after each STEPS steps too, not only after each epoch")  # fmt: skip
    add("--resume", choices=["auto", "never"], default="auto",
        help="auto goes on from the newest checkpoint; never wants none to be there")  # fmt: skip
    add("--fall-back", action="store_true",
        help="where the newest checkpoint is damaged, take the one before it")  # fmt: skip

    add = result.add_argument_group("running").add_argument
    add("--events", type=_path, metavar="FILE", help="append what happens, as lines of JSON")
    add("--events-every", type=_count, default=10, metavar="STEPS",
        help="steps between events 'step'")  # fmt: skip
    add("--timeout", type=_seconds, default=60.0, metavar="SECONDS",
        help="how long a process waits for the others")  # fmt: skip
    add("--no-progress", action="store_true", help="no progress bar")

    options = result.parse_args(arguments)
    if options.fast and options.double:
        result.error("--fast and --double exclude each other")
    if options.checkpoint_dir is None:
        for name in ("checkpoint_every", "fall_back"):
            if getattr(options, name):
                result.error(f"--{name.replace('_', '-')} needs --checkpoint-dir")
    return options
