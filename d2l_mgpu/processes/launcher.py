"""Run a function on k processes, one per device, from a script or a notebook cell.

`launch` starts the processes with torch's own elastic agent (what `torchrun` uses) and
adds what a notebook needs. On Linux they are copies of a server that has imported
torch, so that only the first launch waits for that. Functions, arguments and results
travel by cloudpickle, so they may be defined in a cell. Errors name the rank that
failed first. Nothing is left behind: the agent runs in a thread, where it installs no
signal handlers; the ranks meet through a file, so there is no port to lose; each rank
leads a process group, so what it started ends with it; everything on disk lives in one
temporary folder; and the server ends with its caller.
"""

import os
import pickle
import shutil
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from d2l_mgpu.arguments import integer
from d2l_mgpu.devices import get_devices
from d2l_mgpu.processes.agent import AgentThread
from d2l_mgpu.processes.caller import caller_as_before, uninterrupted
from d2l_mgpu.processes.guard import guarded_folder
from d2l_mgpu.processes.worker import Raised, pack

_ONE_AT_A_TIME = threading.Lock()  # a launch from another thread waits for its turn


class RankError(RuntimeError):
    """A rank failed: `rank` says which, `traceback` shows where, `__cause__` is its
    exception."""

    def __init__(self, rank: int, problem: str, traceback: str = "") -> None:
        super().__init__(rank, problem, traceback)
        self.rank, self.problem, self.traceback = rank, problem, traceback

    def __str__(self) -> str:
        return f"rank {self.rank} {self.problem}\n\n{self.traceback}".rstrip()


def launch(
    fn: Callable[..., Any], *args: Any, num_devices: int, timeout: float | None = None
) -> list[Any]:
    """Return `[fn(*args) on rank 0, ..., on rank num_devices - 1]`, each run in its own
    process.

    In each process `torch.distributed` is initialized and `rank_device()` is the rank's
    device. What the ranks print appears here: rank 0 live, the others when all have
    finished. Programs that they start end with them, unless they begin a session of
    their own. A rank may itself call `launch`. It computes with the default dtype, the
    precision of products and the choice of deterministic algorithms that the caller
    has.

    On Linux the first launch starts a server that imports PyTorch and ends with this
    process; the ranks of all launches are copies of it. Set D2L_MGPU_START=spawn in the
    environment to have each rank start as a new process that imports PyTorch itself, as
    on other systems.

    Raises RankError when a rank fails, TimeoutError after `timeout` seconds (starting
    the processes takes some of them), ValueError or TypeError for arguments that cannot
    be used or sent.
    """
    devices = _checked(fn, num_devices, timeout)
    with _ONE_AT_A_TIME, caller_as_before(), guarded_folder() as folder:
        pack(fn, args, folder / "job")
        agent = AgentThread(folder, devices)
        try:
            with uninterrupted():
                agent.start()
            agent.watch(timeout)
        finally:
            with uninterrupted():
                agent.stop()
        if agent.all_returned():
            return [_result(agent, rank) for rank in agent.ranks]
        raise _failure(agent, timeout)


def _checked(fn: object, num_devices: int, timeout: float | None) -> list[torch.device]:
    """Return the devices, or say what is wrong with the arguments of `launch`."""
    if not callable(fn):
        raise TypeError(
            f"launch runs a function, but it was given {fn!r}; pass fn, not fn(...)."
        )
    seconds = (
        0
        if isinstance(timeout, bool) or not isinstance(timeout, int | float)
        else timeout
    )
    if timeout is not None and not seconds > 0:
        raise ValueError(
            f"timeout must be a number of seconds above 0 or None, not {timeout!r}."
        )
    num_devices = integer("num_devices", num_devices)
    accelerators = (
        torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    )
    most = max(16, 4 * (os.cpu_count() or 1), accelerators)
    if num_devices > most:
        raise ValueError(
            f"num_devices is {num_devices}, but each is a process of about 300 MB, and "
            f"on this machine launch starts at most {most}; use fewer, or torchrun on "
            "more machines."
        )
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ValueError(
            "The working directory was removed, and no process can start there: "
            "change to another with os.chdir."
        ) from None
    return get_devices(num_devices, quiet=True)


def _result(agent: AgentThread, rank: int) -> Any:
    try:
        with agent.file(rank, "returned").open("rb") as file:
            return pickle.load(file)
    except (Exception, SystemExit) as error:
        raise RankError(
            rank,
            f"returned what cannot be unpickled here ({type(error).__name__}: "
            f"{error}); return numbers, tensors or a state_dict instead.",
        ) from error


def _failure(agent: AgentThread, timeout: float | None) -> Exception:
    """Return what went wrong first. Losing a peer is an effect: other exceptions go
    before deaths, deaths before lost peers, and then the earlier one goes first."""
    # which we have put there, and do not remove
    if not (agent.folder / "job").exists():
        return RuntimeError(
            f"The folder {agent.folder}, in which the ranks leave their results, was "
            "removed while they ran: keep what cleans up temporary files away from it."
        )
    raised: dict[int, Raised] = {
        rank: pickle.loads(agent.file(rank, "raised").read_bytes())
        for rank in agent.ranks
        if agent.has(rank, "raised")
    }
    first = min(
        raised, key=lambda r: (raised[r].blames_peer, raised[r].seconds), default=None
    )
    dead = agent.first_death(set(raised))
    if first is not None and (dead is None or not raised[first].blames_peer):
        found = raised[first]
        problem = f"failed: {found.summary}"
        if found.blames_peer:
            problem = f"failed in a collective{_to_look_for(agent)}: {found.summary}"
        error = RankError(first, problem, found.traceback)
        # it may know only in its own process how to be unpickled
        with suppress(Exception):
            error.__cause__ = pickle.loads(found.pickled) if found.pickled else None
        return error
    if dead is not None:
        code = agent.exit_codes.get(dead, 0)
        names = {s.value: s.name for s in signal.Signals}
        end = f"exit code {code}"
        if code < 0:
            end = f"killed by {names.get(-code, f'signal {-code}')}"
        last_words = agent.file(dead, "fatal")
        text = last_words.read_text(errors="replace") if last_words.exists() else ""
        if "collective mismatch" in text:
            end += f" in a collective{_to_look_for(agent)}"
        elif _is_full(agent.folder):
            end += f"; there is no room left in {agent.folder.parent}"
        when = "before its function returned"
        if agent.has(dead, "returned"):
            when = "when others had not returned yet"
        return RankError(dead, f"died {when}: {end}", text)
    if agent.late and timeout is not None:
        return TimeoutError(
            f"{len(agent.late)} of {len(agent.ranks)} ranks had not returned after "
            f"{timeout:g} seconds: {', '.join(map(str, agent.late))}; look for a "
            "collective that not every rank calls, or allow a longer timeout."
        )
    return RuntimeError(
        f"The processes could not be started: {agent.agent_error} (they need room in "
        f"{agent.folder.parent} and, on Linux, in /dev/shm)."
    )


def _to_look_for(agent: AgentThread) -> str:
    """What makes a collective fail although no rank died before."""
    returned = ", ".join(
        str(rank) for rank in agent.ranks if agent.has(rank, "returned")
    )
    already = f", when rank {returned} had already returned" if returned else ""
    return (
        f"{already} (every rank must call it, with a tensor of the same shape and "
        "dtype)"
    )


def _is_full(folder: Path) -> bool:
    return shutil.disk_usage(folder).free < 2**16
