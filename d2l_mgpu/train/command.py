"""Train a network on any number of processes and machines.

On one device, on two, and on two machines (this on each of them)::

    python -m d2l_mgpu.train
    torchrun --nproc-per-node=2 -m d2l_mgpu.train
    torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d
             --rdzv-endpoint=<first machine>:29400 -m d2l_mgpu.train

All of them take the same steps. Standard output gets one line of JSON an epoch.
SIGTERM, Ctrl-C and the end of the terminal end the run after the current step, with a
checkpoint and exit code 75; the same command then goes on from there. A loss that
becomes NaN ends it with exit code 2.

Who can connect to the port of torchrun can run code: use it in a network that you
trust.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NoReturn

from d2l_mgpu.exactness import deterministic
from d2l_mgpu.history import Epoch
from d2l_mgpu.processes.group import Group, process_group
from d2l_mgpu.train.checksums import CheckpointError
from d2l_mgpu.train.options import read
from d2l_mgpu.train.run import Stopped, TrainingRun

STOPPED = 75  # EX_TEMPFAIL of sysexits.h: nothing is wrong, try again later


def main(arguments: Sequence[str] | None = None) -> list[Epoch]:
    """Train as the options in `arguments` (those of the command line) say.

    Returns the epochs that this run has finished. Ends the process with SystemExit: 2
    and one sentence for options and files that cannot be right, 75 after a stop.
    """
    options = read(arguments, __doc__)
    exactly = deterministic() if options.deterministic else nullcontext()
    try:
        with exactly, process_group(options.timeout) as group:
            history = _train(options, group)
            # this process ends: another SIGTERM has nothing to add
            if arguments is None:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # the environment, where torchrun says which process this is
    except ValueError as error:
        _refuse(error)
    if history is None:
        raise SystemExit(STOPPED)
    return history


def _train(options: argparse.Namespace, group: Group) -> list[Epoch] | None:
    """Return the finished epochs, or None after a stop: then all ranks take leave
    together."""
    try:
        return TrainingRun(options, group).train()
    except Stopped:
        return None
    except (CheckpointError, OSError, ValueError) as error:
        # Each rank says it, since what stops one, a disk for instance, need not stop
        # the others.
        _refuse(f"rank {group.rank}: {error}" if group.world_size > 1 else error)


def _refuse(why: object) -> NoReturn:
    print(f"d2l_mgpu.train: {why}", file=sys.stderr, flush=True)
    raise SystemExit(2) from None
