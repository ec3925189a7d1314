"""What a process does when another rank is gone: recognize it by the error, and leave
at once."""

import os
import re
import subprocess
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

import torch.distributed as dist

# Process $1 gets SIGTERM if, for 10 s, it does not take notice of the end of its child
# $0.
_WATCH = "for _ in 1 2 3 4 5 6 7 8 9 10; do sleep 1; kill -0 $0 || exit; done; kill $1"


def first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


def blames_peer(error: BaseException | None) -> bool:
    """Whether `error`, or what it was raised from, is a collective that another rank
    left."""
    seen: set[int] = set()  # what an error was raised from may be that error again
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = "".join(traceback.format_exception_only(error))  # str(error) may raise
        if isinstance(error, dist.DistError):
            return True
        if isinstance(error, RuntimeError) and re.search(
            r"gloo|nccl", text, re.IGNORECASE
        ):
            return True
        error = error.__cause__ or (
            None if error.__suppress_context__ else error.__context__
        )
    return False


def leave(why: str) -> NoReturn:
    """End at once: with a peer gone, taking leave of the process group could wait for
    ever.

    So could torchrun, and not notice our end: on a node that is cut off it has asked
    the store of the rendezvous something and waits, for as long as TCP does, for the
    answer. It sees SIGTERM.
    """
    print(why, file=sys.stderr, flush=True)
    if dist.is_torchelastic_launched():
        ids, nothing = [str(os.getpid()), str(os.getppid())], subprocess.DEVNULL
        command = ["sh", "-c", _WATCH, *ids]
        with suppress(OSError):  # a system without sh
            subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)
    os._exit(1)
