"""What runs inside each process that `launch` starts, and what it is sent.

A worker joins the process group, calls the function it was sent, and leaves what came of it in the
folder of its launch: `<rank>.returned` or `<rank>.raised`, beside `<rank>.pid`, `<rank>.out`
(what it printed) and `<rank>.fatal` (what native code wrote before it died).
"""

import faulthandler
import linecache
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from d2l_mgpu.processes import blames_peer, join


@dataclass(frozen=True)
class Raised:
    """An exception on its way to the caller; the live object keeps frames that cannot travel."""

    summary: str  # "ValueError: no such shard"
    traceback: str
    seconds: float  # time.monotonic(), one clock for all processes of a machine
    blames_peer: bool  # it only says that another rank is gone
    pickled: bytes | None  # the exception itself, where it survives pickling


def pack(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """Pickle what a worker needs, with the source lines of notebook cells for its tracebacks."""
    import cloudpickle

    sources = {
        name: (entry[0], None, *entry[2:])  # no time stamp: there is no file to compare it with
        for name, entry in linecache.cache.items()
        if len(entry) == 4 and not os.path.exists(name)
    }
    name = getattr(fn, "__name__", repr(fn))
    parts = [(f"the function {name}", fn)]
    parts += [(f"argument {i} of {name}, a {type(a).__name__},", a) for i, a in enumerate(args, 1)]
    for what, part in parts:
        try:
            cloudpickle.dumps(part)
        except Exception as error:
            raise TypeError(
                f"{what} cannot be sent to another process ({error}); "
                "create it inside the function instead."
            ) from error
    return cloudpickle.dumps((fn, args, sources))


def work(folder: str, devices: list[torch.device], num_threads: int) -> None:
    """Run the job in `folder` as the rank that the elastic agent put into the environment."""
    import cloudpickle

    rank = int(os.environ["RANK"])
    stem = Path(folder) / str(rank)
    _live_and_die_with_caller()
    _redirect_output(stem)
    _write(stem.with_suffix(".pid"), str(os.getpid()).encode())
    try:
        _join_group(rank, devices, Path(folder) / "store")
        torch.set_num_threads(num_threads)
        fn, args, sources = cloudpickle.loads((Path(folder) / "job").read_bytes())
        linecache.cache.update(sources)  # tracebacks show the lines of notebook cells
        returned = _pickled(fn(*args), rank)
    except BaseException as error:
        raised = _describe(error)
        _write(stem.with_suffix(".raised"), cloudpickle.dumps(raised))
        sys.stdout.flush()
        if raised.blames_peer:
            time.sleep(60)  # let the caller find the peer that died; it will then end us
        os._exit(1)  # the process group may be stuck: do not try to take leave of it
    _write(stem.with_suffix(".returned"), returned)
    if dist.is_initialized():
        dist.destroy_process_group()


def _live_and_die_with_caller() -> None:
    """Die at once on Ctrl-C, wherever this process is, and when the caller is killed."""

    def watch() -> None:
        caller = multiprocessing.parent_process()
        if caller is not None:
            caller.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback: the caller tells the reader
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked while we were starting


def _redirect_output(stem: Path) -> None:
    """Send what the function prints to `<stem>.out`; what torch's C++ warns of stays out of it."""
    out = stem.with_suffix(".out").open("a", buffering=1, encoding="utf-8", errors="replace")
    fatal = stem.with_suffix(".fatal").open("a")
    os.dup2(out.fileno(), 1)  # also for programs that the function starts
    os.dup2(fatal.fileno(), 2)
    faulthandler.enable(fatal, all_threads=False)
    sys.stdout = sys.stderr = out


def _join_group(rank: int, devices: list[torch.device], store: Path) -> None:
    """Meet the other ranks through the file `store`: no port, no host name."""
    names = [name for _, name in socket.if_nameindex()]
    os.environ["GLOO_SOCKET_IFNAME"] = next(name for name in names if name.startswith("lo"))
    join(devices, rank, dist.FileStore(str(store), len(devices)), rank, len(devices))


def _pickled(result: Any, rank: int) -> bytes:
    import cloudpickle

    try:
        return cloudpickle.dumps(result)
    except Exception as error:
        raise TypeError(
            f"the result of rank {rank}, a {type(result).__name__}, cannot be sent back to the "
            f"caller ({error}); return numbers, tensors or a state_dict instead."
        ) from None


def _describe(error: BaseException) -> Raised:
    import cloudpickle

    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next  # start at the reader's own code
    try:
        pickled = cloudpickle.dumps(error)
        cloudpickle.loads(pickled)
    except Exception:
        pickled = None
    return Raised(
        summary="".join(traceback.format_exception_only(error)).strip(),
        traceback="".join(traceback.format_exception(type(error), error, trace)).rstrip(),
        seconds=time.monotonic(),
        blames_peer=blames_peer(error),
        pickled=pickled,
    )


def _write(path: Path, content: bytes) -> None:
    """Write a file that is either whole or not there."""
    unfinished = path.with_suffix(path.suffix + ".part")
    unfinished.write_bytes(content)
    unfinished.replace(path)
