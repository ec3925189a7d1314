"""The processes of one launch: torch's elastic agent starts them, and we watch and end
them."""

import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing import active_children, resource_tracker
from pathlib import Path
from typing import Any

import torch

from d2l_mgpu.processes.fork_server import start_method
from d2l_mgpu.processes.output import Output
from d2l_mgpu.processes.worker import work

# seconds that the other ranks get to end by themselves after one has failed
_PATIENCE = 3.0
_ENDLESS = 1e9  # seconds
_FAREWELL = 5.0  # seconds that processes get to end after all functions have returned


class AgentThread(threading.Thread):
    """One launch: the elastic agent in a thread, and what its workers leave in
    `folder`."""

    def __init__(self, folder: Path, devices: list[torch.device]) -> None:
        super().__init__(name="d2l_mgpu.launch", daemon=True)
        self.folder, self.devices, self.ranks = folder, devices, range(len(devices))
        prefixes = [
            f"[rank {rank}] " if len(devices) > 1 else "" for rank in self.ranks
        ]
        self.outputs = [
            Output(self.file(r, "out"), prefix) for r, prefix in enumerate(prefixes)
        ]
        self.agent: Any = None
        self.agent_error: Exception | None = None
        # of the worker that the agent saw fail first
        self.exit_codes: dict[int, int] = {}
        self.vanished: list[int] = []  # ranks that ended without a word
        self.late: list[int] = []  # ranks still running at the timeout
        # until when the processes have to end once all returned
        self.last_call = float("inf")
        self.wanted = True
        self.ended = threading.Event()

    def file(self, rank: int, kind: str) -> Path:
        """Return where the worker of `rank` leaves what `worker` lists, `kind` by
        `kind`."""
        return self.folder / f"{rank}.{kind}"

    def has(self, rank: int, kind: str) -> bool:
        return self.file(rank, kind).exists()

    def all_returned(self) -> bool:
        """Whether there is a result of every rank; from now on, the processes have to
        end."""
        returned = all(self.has(rank, "returned") for rank in self.ranks)
        if returned:
            self.last_call = min(self.last_call, time.monotonic() + _FAREWELL)
        return returned

    def run(self) -> None:
        try:
            self._run_agent()
        except Exception as error:
            # its frames keep the agent alive
            self.agent_error = error.with_traceback(None)
        finally:
            self.agent = None  # it holds semaphores
            self.ended.set()

    def _run_agent(self) -> None:
        # What `elastic_launch` does, except that it keeps the agent, and so its
        # workers, to itself.
        from torch.distributed.elastic.agent.server import WorkerSpec
        from torch.distributed.elastic.agent.server.local_elastic_agent import (
            LocalElasticAgent,
        )
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
        from torch.distributed.elastic.rendezvous import (
            RendezvousParameters,
            rendezvous_handler_registry,
        )

        # Workers, and the server that they are copies of, inherit this mask: a Ctrl-C
        # while they start cannot fill the screen. Starting the tracker takes the mask
        # away again.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        method = start_method()
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        rendezvous = RendezvousParameters(
            backend="c10d",
            endpoint=str(self.folder / "rendezvous"),
            run_id=self.folder.name,
            min_nodes=1,
            max_nodes=1,
            local_addr="127.0.0.1",
            store_type="file",
        )
        num_threads = max(1, torch.get_num_threads() // len(self.devices))
        spec = WorkerSpec(
            role="default",
            local_world_size=len(self.devices),
            entrypoint=work,
            args=(str(self.folder), self.devices, num_threads, dict(os.environ)),
            rdzv_handler=rendezvous_handler_registry.create_handler(rendezvous),
            max_restarts=0,
            monitor_interval=0.1,
            local_addr="127.0.0.1",
        )
        logs = DefaultLogsSpecs(log_dir=str(self.folder / "agent"))
        self.agent = LocalElasticAgent(spec, logs, start_method=method)
        try:
            if not self.wanted:  # a Ctrl-C came while the server was starting
                return
            failures = self.agent.run().failures
            self.exit_codes = {
                rank: failed.exitcode for rank, failed in failures.items()
            }
        finally:
            spec.rdzv_handler.shutdown()
            with suppress(AttributeError):  # it has not come to starting processes
                # after a death in torch's code
                for left in self.agent._pcontext._pc.error_files:
                    Path(left).unlink(missing_ok=True)

    def watch(self, timeout: float | None) -> None:
        """Wait for the agent, but not longer than `timeout`, and not for ranks that
        hang when another has failed, or at their end; meanwhile show what rank 0
        prints."""
        give_up = time.monotonic() + min(timeout or _ENDLESS, _ENDLESS)
        while not self.ended.wait(0.05):
            self.outputs[0].show()
            self.vanished = [rank for rank in self.ranks if self._has_vanished(rank)]
            failed = self.vanished or any(
                self.has(rank, "raised") for rank in self.ranks
            )
            if failed or not self.folder.exists():
                give_up = min(give_up, time.monotonic() + _PATIENCE)
            if self.all_returned():
                give_up = self.last_call
            if time.monotonic() > give_up:
                self.late = [
                    rank for rank in self.ranks if not self.has(rank, "returned")
                ]
                return

    def stop(self) -> None:
        """Kill the workers that still run, and what they started; show what is left to
        show.

        Where all ranks have returned, they are about to end: the agent is telling them
        to, and would wait for ever until one that we kill has heard it.
        """
        self.wanted = False
        if self.all_returned():
            self.ended.wait(max(0.0, self.last_call - time.monotonic()))
        # without it, the agent would wait for its store for ever
        self.folder.mkdir(exist_ok=True)
        while self.ident is not None:  # else it could not be started
            self._kill()
            if self.ended.wait(0.05):
                self.join()
                break
            if self.all_returned():
                self._wake()
        for output in self.outputs:
            output.show(ended=True)

    def _kill(self) -> None:
        agent = self.agent
        workers = agent.get_worker_group().workers if agent else []
        started = {worker.id for worker in workers}  # not the caller's other children
        for process in active_children():
            if process.pid in started:
                process.kill()
        for rank in self.ranks:  # each leads a process group
            # PermissionError is what macOS says of a group that has ended.
            with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                os.killpg(int(self.file(rank, "pid").read_text()), signal.SIGKILL)

    def _wake(self) -> None:
        """Tell the agent that as many workers have heard it as there are. Only the
        semaphore that counts them can: nothing else ends its wait for a worker that was
        killed."""
        with suppress(AttributeError):  # it has ended meanwhile
            heard = self.agent._pcontext._worker_finished_event._cond._woken_count
            for _ in self.ranks:
                heard.release()

    def first_death(self, raised: set[int]) -> int | None:
        """Return the rank that died without an exception. The agent knows, but it
        overlooks exit code 0, and when we had to end the run it may blame a worker that
        we killed."""
        dead = [rank for rank in self.exit_codes if rank not in raised]
        if self.late:
            dead = [rank for rank in dead if rank in self.vanished] + self.vanished
        return dead[0] if dead else None

    def _has_vanished(self, rank: int) -> bool:
        """Whether the process of `rank` is gone and has left neither result nor
        exception."""
        try:
            os.kill(int(self.file(rank, "pid").read_text()), 0)
        except FileNotFoundError:  # it is still starting
            return False
        except ProcessLookupError:
            return not any(self.has(rank, end) for end in ("returned", "raised"))
        return False
