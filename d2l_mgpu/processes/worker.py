"""What runs inside each process that `launch` starts, and what it is sent.

A worker joins the process group, calls the function it was sent, and leaves what came
of it in the folder of its launch: `<rank>.returned` or `<rank>.raised`, beside
`<rank>.pid`, `<rank>.out` (what it printed) and `<rank>.fatal` (what native code wrote
before it died).
"""

import faulthandler
import fcntl
import linecache
import multiprocessing
import os
import pickle
import re
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
import torch.distributed as dist

from d2l_mgpu.exactness import modes_of_torch, set_modes
from d2l_mgpu.processes.fork_server import SERVER
from d2l_mgpu.processes.joining import join_process_group
from d2l_mgpu.processes.lost_peer import blames_peer, first_line
from d2l_mgpu.processes.threads import limit_threads


@dataclass(frozen=True)
class Raised:
    """An exception on its way to the caller; the live object keeps frames that cannot
    travel."""

    summary: str  # "ValueError: no such shard"
    traceback: str
    seconds: float  # time.monotonic(), one clock for all processes of a machine
    blames_peer: bool  # it only says that another rank is gone
    pickled: bytes | None  # the exception itself, where it survives pickling


def pack(fn: Callable[..., Any], args: tuple[Any, ...], file: Path) -> None:
    """Pickle into `file` what a worker needs, with the source lines of notebook cells
    for its tracebacks. Raises TypeError that names the argument that cannot travel."""
    import cloudpickle

    sources = {
        # no time stamp: there is no file to compare it with
        name: (entry[0], None, *entry[2:])
        for name, entry in linecache.cache.items()
        if len(entry) == 4 and not os.path.exists(name)
    }
    try:
        with atomic_write(file) as job:
            # Written as it is pickled: no copy of a huge argument in memory.
            cloudpickle.dump((fn, args, sources, modes_of_torch()), job)
    except OSError as error:
        raise _no_room_for("the function and its arguments", error) from None
    except (Exception, SystemExit):
        name = getattr(fn, "__name__", type(fn).__name__)
        parts = [(f"the function {name}", fn)]
        parts += [
            (f"argument {i} of {name}, a {type(a).__name__},", a)
            for i, a in enumerate(args, 1)
        ]
        for what, part in parts:
            try:
                cloudpickle.dumps(part)
            except (Exception, SystemExit) as error:
                raise TypeError(
                    f"{what} cannot be sent to another process ({error}); "
                    "create it inside the function instead."
                ) from error
        raise


def work(
    folder: str,
    devices: list[torch.device],
    num_threads: int,
    environment: dict[str, str],
) -> None:
    """Run the job in `folder` as the rank that the elastic agent put into the
    environment."""
    import cloudpickle

    rank = int(os.environ["RANK"])
    stem = Path(folder) / str(rank)
    try:
        _live_and_die_with_caller(stem)
        _be_like_a_new_process(environment)
        _redirect_output(stem)
    except BaseException:
        # the folder is gone, since the caller was killed: leave nothing elsewhere
        os._exit(1)
    try:
        _join_group(rank, devices, Path(folder) / "store")
        limit_threads(num_threads)
        with (Path(folder) / "job").open("rb") as file:
            fn, args, sources, modes = pickle.load(file)
        linecache.cache.update(sources)  # tracebacks show the lines of notebook cells
        set_modes(modes)
        SERVER.adopt()
        _send(fn(*args), rank, stem)
    except BaseException as error:
        try:
            raised = _describe(error)
            with atomic_write(stem.with_suffix(".raised")) as file:
                cloudpickle.dump(raised, file)
            sys.stdout.flush()
            if raised.blames_peer:
                # let the caller find the peer that died; it will then end us
                time.sleep(60)
        finally:
            # the process group may be stuck: do not try to take leave of it
            os._exit(1)
    if dist.is_initialized():
        dist.destroy_process_group()


def _live_and_die_with_caller(stem: Path) -> None:
    """Die at once of SIGINT, and on Linux when the caller dies. Lead a process group
    that those who know `<stem>.pid` can kill: this process and what it starts."""
    # no traceback: the caller tells the reader
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # blocked while we were starting
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    caller = multiprocessing.parent_process()
    assert caller is not None
    # the kernel tells of the end of the pipe that only the caller has
    if sys.platform == "linux":
        fcntl.fcntl(caller.sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(caller.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(caller.sentinel, fcntl.F_SETFL, os.O_ASYNC)
    if not caller.is_alive():
        os._exit(1)  # it died before anyone could know of us
    os.setpgid(0, 0)
    with atomic_write(stem.with_suffix(".pid")) as file:
        file.write(f"{os.getpid()}\n".encode())


def _be_like_a_new_process(environment: dict[str, str]) -> None:
    """Take over what a copy of the fork server has not inherited from the caller; a
    process that was started anew has it."""
    # the agent's own variables are here already
    os.environ.update(environment | dict(os.environ))
    # else all ranks would draw the same; Python's generator sees to it itself
    np.random.seed()
    torch.default_generator.seed()


def _redirect_output(stem: Path) -> None:
    """Send what the function prints to `<stem>.out`; what torch's C++ warns of stays
    out of it."""
    out = stem.with_suffix(".out").open(
        "a", buffering=1, encoding="utf-8", errors="replace"
    )
    fatal = stem.with_suffix(".fatal").open("a")
    os.dup2(out.fileno(), 1)  # also for programs that the function starts
    os.dup2(fatal.fileno(), 2)
    faulthandler.enable(fatal, all_threads=False)
    sys.stdout = sys.stderr = out


def _join_group(rank: int, devices: list[torch.device], store: Path) -> None:
    """Meet the other ranks through the file `store`: no port, no host name."""
    names = [name for _, name in socket.if_nameindex()]
    loopback = next(name for name in names if name.startswith("lo"))
    os.environ["GLOO_SOCKET_IFNAME"] = loopback
    size = len(devices)
    try:
        join_process_group(devices, rank, dist.FileStore(str(store), size), rank, size)
    except RuntimeError as error:
        if not re.search("Unable to find address|bind:", str(error)):
            raise
        raise OSError(
            f"ranks meet over the loopback interface {loopback}, which is down or has "
            f"no free port ({first_line(error)}); on Linux, `ip link set {loopback} "
            "up` brings it up"
        ) from None


def _send(result: Any, rank: int, stem: Path) -> None:
    import cloudpickle

    try:
        with atomic_write(stem.with_suffix(".returned")) as file:
            cloudpickle.dump(result, file)
    except OSError as error:
        raise _no_room_for(f"the result of rank {rank}", error) from None
    except Exception as error:
        raise TypeError(
            f"the result of rank {rank}, a {type(result).__name__}, cannot be sent "
            f"back to the caller ({error}); return numbers, tensors or a state_dict "
            "instead."
        ) from None


def _no_room_for(what: str, error: OSError) -> OSError:
    folder = tempfile.gettempdir()
    return OSError(
        error.errno,
        f"{what} cannot be written to {folder} ({error.strerror}): make room there, or "
        "name another folder in the environment variable TMPDIR",
    )


def _describe(error: BaseException) -> Raised:
    import cloudpickle

    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next  # start at the reader's own code
    try:
        pickled = cloudpickle.dumps(error)
        pickle.loads(pickled)
    except BaseException:  # a SystemExit, too, must not replace the error
        pickled = None
    summary = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, SystemExit):
        code = "" if error.code is None else repr(error.code)
        summary = f"it called sys.exit({code}); let the function return instead"
    return Raised(
        summary=summary,
        traceback="".join(
            traceback.format_exception(type(error), error, trace)
        ).rstrip(),
        seconds=time.monotonic(),
        blames_peer=blames_peer(error),
        pickled=pickled,
    )


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that will either be whole or not be there."""
    unfinished = path.with_suffix(path.suffix + ".part")
    try:
        with unfinished.open("wb") as file:
            yield file
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
