"""Run a function on k processes, one per device, from a script or a notebook cell.

`launch` starts the processes with torch's own elastic agent (what `torchrun` uses) and adds what a
notebook needs. Functions, arguments and results travel by cloudpickle, so they may be defined in a
cell. Errors name the rank that failed first. Nothing is left behind: the agent runs in a thread,
where it installs no signal handlers; the ranks meet through a file, so there is no port to lose;
and everything on disk lives in one temporary folder.
"""

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import active_children, resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from d2l_mgpu._worker import Raised, pack, work
from d2l_mgpu.devices import get_devices
from d2l_mgpu.processes import rank_device

__all__ = ["RankError", "launch", "rank_device"]

_ONE_AT_A_TIME = threading.Lock()  # a launch from another thread waits for its turn
# What the agent sets, and what keeps it from opening a port that nobody would use.
_VARIABLES = ("TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE")
_PATIENCE = 3.0  # seconds that the other ranks get to end by themselves after one has failed


class RankError(RuntimeError):
    """A rank failed: `rank` says which, `traceback` shows where, `__cause__` is its exception."""

    def __init__(self, rank: int, problem: str, traceback: str = "") -> None:
        super().__init__(rank, problem, traceback)
        self.rank, self.problem, self.traceback = rank, problem, traceback

    def __str__(self) -> str:
        return f"rank {self.rank} {self.problem}\n\n{self.traceback}".rstrip()


def launch(
    fn: Callable[..., Any], *args: Any, num_devices: int, timeout: float | None = None
) -> list[Any]:
    """Return `[fn(*args) on rank 0, ..., on rank num_devices - 1]`, each run in its own process.

    In each process `torch.distributed` is initialized and `rank_device()` is the rank's device.
    What the ranks print appears here: rank 0 live, the others when all have finished.

    Raises RankError when a rank fails, TimeoutError after `timeout` seconds (starting the
    processes takes some of them), ValueError or
    TypeError for arguments that cannot be used or sent.
    """
    if not callable(fn):
        raise TypeError(f"launch runs a function, but it was given {fn!r}; pass fn, not fn(...).")
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise ValueError(f"timeout must be a number of seconds above 0 or None, not {timeout!r}.")
    devices = get_devices(num_devices, quiet=True)
    job = pack(fn, args)
    with (
        _ONE_AT_A_TIME,
        _caller_as_before(),
        TemporaryDirectory(prefix="d2l-mgpu-", ignore_cleanup_errors=True) as folder,
    ):
        Path(folder, "job").write_bytes(job)
        run = _Run(Path(folder), devices)
        try:
            run.start()
            run.watch(timeout)
        finally:
            run.stop()
        results = run.results()
        if results is None:
            raise run.failure(timeout)
        return results


class _Run(threading.Thread):
    """One launch: the elastic agent in a thread, and what its workers leave in `folder`."""

    def __init__(self, folder: Path, devices: list[torch.device]) -> None:
        super().__init__(name="d2l_mgpu.launch", daemon=True)
        self.folder, self.devices, self.ranks = folder, devices, range(len(devices))
        self.others = set(active_children())  # processes of the caller, not ours to stop
        self.printed = dict.fromkeys(self.ranks, 0)  # bytes of each rank's output shown so far
        self.exit_codes: dict[int, int] = {}  # of the worker that the agent saw fail first
        self.vanished: list[int] = []  # ranks that ended without a word
        self.late: list[int] = []  # ranks still running at the timeout
        self.agent_error: Exception | None = None
        self.ended = threading.Event()  # Ctrl-C in join() makes Python 3.11 forget a live thread

    def run(self) -> None:
        try:
            self._run_agent()
        except Exception as error:
            self.agent_error = error.with_traceback(None)  # its frames keep the agent alive
        finally:
            self.ended.set()

    def _run_agent(self) -> None:
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

        # Workers inherit this mask: a Ctrl-C while they start cannot fill the screen. The tracker
        # runs before it is set, because starting it takes the mask away again.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=len(self.devices),
            run_id=self.folder.name,
            rdzv_backend="c10d",
            rdzv_endpoint=str(self.folder / "rendezvous"),
            rdzv_configs={"store_type": "file"},
            local_addr="127.0.0.1",
            max_restarts=0,
            start_method="spawn",
            logs_specs=DefaultLogsSpecs(log_dir=str(self.folder / "agent")),
        )
        num_threads = max(1, torch.get_num_threads() // len(self.devices))
        try:
            elastic_launch(config, work)(str(self.folder), self.devices, num_threads)
        except ChildFailedError as error:
            self.exit_codes = {rank: failed.exitcode for rank, failed in error.failures.items()}

    def watch(self, timeout: float | None) -> None:
        """Wait for the agent, but not longer than `timeout` and not for ranks that hang when
        another has failed; meanwhile show what rank 0 prints."""
        start = time.monotonic()
        give_up = start + timeout if timeout else float("inf")
        while not self.ended.wait(0.05):
            self._show(0)
            self.vanished = [rank for rank in self.ranks if self._has_vanished(rank)]
            if self.vanished or any(self._file(rank, "raised").exists() for rank in self.ranks):
                give_up = min(give_up, time.monotonic() + _PATIENCE)
            if time.monotonic() > give_up:
                self.late = [r for r in self.ranks if not self._file(r, "returned").exists()]
                return

    def stop(self) -> None:
        """Kill the workers that still run and show what is left to show. A second Ctrl-C does
        not cut this short."""
        while self.ident is not None:  # else it was interrupted before it began
            with suppress(KeyboardInterrupt):
                for process in set(active_children()) - self.others:
                    if not process.daemon:  # those are data loaders and pools
                        process.kill()
                if self.ended.wait(0.05):
                    self.join()
                    break
        for rank in self.ranks:
            self._show(rank, ended=True)

    def results(self) -> list[Any] | None:
        """Return every rank's result; None unless all ranks have one."""
        import cloudpickle

        results = []
        for file in [self._file(rank, "returned") for rank in self.ranks]:
            if not file.exists():
                return None
            results.append(cloudpickle.loads(file.read_bytes()))
        return results

    def failure(self, timeout: float | None) -> Exception:
        """Return what went wrong first. Losing a peer is an effect: other exceptions go before
        deaths, deaths before lost peers, and then the earlier one goes first."""
        import cloudpickle

        raised: dict[int, Raised] = {
            rank: cloudpickle.loads(self._file(rank, "raised").read_bytes())
            for rank in self.ranks
            if self._file(rank, "raised").exists()
        }
        first = min(raised, key=lambda r: (raised[r].blames_peer, raised[r].seconds), default=None)
        dead = self._first_death(set(raised))
        if first is not None and (dead is None or not raised[first].blames_peer):
            found = raised[first]
            error = RankError(first, f"failed: {found.summary}", found.traceback)
            error.__cause__ = cloudpickle.loads(found.pickled) if found.pickled else None
            return error
        if dead is not None:
            code = self.exit_codes.get(dead, 0)
            end = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            last_words = self._file(dead, "fatal")
            text = last_words.read_text(errors="replace") if last_words.exists() else ""
            return RankError(dead, f"died before its function returned: {end}", text)
        if self.late and timeout is not None:
            return TimeoutError(
                f"{len(self.late)} of {len(self.ranks)} ranks had not returned after {timeout:g} "
                f"seconds: {', '.join(map(str, self.late))}; look for a collective that not every "
                "rank calls, or allow a longer timeout."
            )
        return RuntimeError(f"The processes could not be started: {self.agent_error}")

    def _first_death(self, raised: set[int]) -> int | None:
        """Return the rank that died without an exception. The agent knows, but it overlooks exit
        code 0, and when we had to end the run it may blame a worker that we killed."""
        dead = [rank for rank in self.exit_codes if rank not in raised]
        if self.late:
            dead = [rank for rank in dead if rank in self.vanished] + self.vanished
        return dead[0] if dead else None

    def _has_vanished(self, rank: int) -> bool:
        """Whether the process of `rank` is gone and has left neither result nor exception."""
        try:
            os.kill(int(self._file(rank, "pid").read_text()), 0)
        except FileNotFoundError:  # it is still starting
            return False
        except ProcessLookupError:
            return not any(self._file(rank, end).exists() for end in ("returned", "raised"))
        return False

    def _show(self, rank: int, ended: bool = False) -> None:
        """Print the lines that `rank` has printed since the last time."""
        with suppress(FileNotFoundError), self._file(rank, "out").open("rb") as file:
            file.seek(self.printed[rank])
            new = file.read()
            if not ended:
                new = new[: new.rfind(b"\n") + 1]  # a line that is not complete can wait
            self.printed[rank] += len(new)
            text = new.decode(errors="replace")
            if len(self.ranks) > 1:
                # Of a progress bar, which returns to the start of its line, show the last state.
                lines = [line.rsplit("\r", 1)[-1] for line in text.rstrip("\n").split("\n")]
                text = "".join(f"[rank {rank}] {line}\n" for line in lines if text)
            if text:
                print(text, end="", flush=True)

    def _file(self, rank: int, kind: str) -> Path:
        return self.folder / f"{rank}.{kind}"


@contextmanager
def _caller_as_before() -> Iterator[None]:
    """Give the caller its `__main__`, loggers, environment and children back unchanged."""
    import torch.distributed.launcher.api  # noqa: F401  # creates the loggers

    main: dict[str, Any] = vars(sys.modules["__main__"])
    names: tuple[str, ...] = ("__file__", "__spec__")
    hidden = {name: main.pop(name) for name in names if name in main}
    main["__spec__"] = None  # spawned processes now have no script to run again
    variables = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    loggers = [
        logging.getLogger(name)
        for name in list(logging.root.manager.loggerDict)
        if name.startswith(("torch.distributed", "torch.multiprocessing"))
    ]
    silent = {logger: logger.disabled for logger in loggers}
    for logger in loggers:
        logger.disabled = True
    # multiprocessing starts a process that cleans up after it, and lets that run on
    tracker: Any = resource_tracker._resource_tracker
    was_tracking = tracker._pid is not None
    try:
        yield
    finally:
        main.update(hidden)
        for logger, was_silent in silent.items():
            logger.disabled = was_silent
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        gc.collect()  # the agent's semaphores still need the tracker
        if not was_tracking:
            tracker._stop()
