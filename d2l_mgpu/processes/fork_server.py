"""How `launch` starts processes: copied from a fork server that has imported torch, or
anew.

Importing torch takes a new process seconds, and starting as the copy of a process that
has done it takes milliseconds. The server is multiprocessing's, but not the one that
all of a program share: that one may have been started by somebody else, without torch,
and would print nothing of what other people's processes print.
"""

import atexit
import io
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import (
    connection,
    context,
    forkserver,
    popen_forkserver,
    process,
    resource_tracker,
    spawn,
    util,
)
from multiprocessing.reduction import dump, sendfds
from pathlib import Path
from shutil import rmtree
from socket import AF_UNIX, socket
from typing import Any

_PATIENCE = 60.0  # seconds that the server gets to import torch
_LONGEST = 70  # bytes of the name of a folder for a socket, whose path may have 107
_COMMAND = (
    "import sys; sys.path = {}; "
    "from d2l_mgpu.processes.preloaded import serve; serve({}, {}, {!r})"
)
# Variables that are read once, when a program or a library is loaded, begin like this.
_READ_ONCE = re.compile(
    "GLIBC_|GOMP_|KMP_|LANG|LC_|LD_|MALLOC_|MKL_|OMP_|OPENBLAS_|PYTHON|PYTORCH_|TORCH_|TZ"
)


def start_method() -> str:
    """Return how to start processes: "d2l_mgpu", from the fork server, which then is
    running, on Linux; elsewhere, where the server cannot run or D2L_MGPU_START asks for
    it, "spawn".

    Raises RuntimeError where no Python can be started.
    """
    asked = os.environ.get("D2L_MGPU_START")
    if (
        sys.platform != "linux"
        or asked == "spawn"
        or multiprocessing.current_process().daemon
    ):
        return "spawn"  # a daemon may not have children: multiprocessing will say so
    try:
        return "d2l_mgpu" if SERVER.is_ready() or SERVER.start() else "spawn"
    except OSError:  # no room for its folder, or for one more process
        return "spawn"


class _Server(forkserver.ForkServer):
    """The fork server as seen by those who want copies of it."""

    def __init__(self) -> None:
        super().__init__()
        self._forkserver_address: str = ""
        # closed when all who hold it have ended
        self._forkserver_alive_fd: int | None = None
        self.pid = 0
        self.inherited: Any = None
        # of its socket; this and the next only in the process that started it
        self.folder = ""
        self.process: subprocess.Popen[bytes] | None = None

    def connect_to_new_process(self, fds: Sequence[int]) -> tuple[int, int]:
        """Ask for a copy. As multiprocessing does up to Python 3.13, without the key of
        later versions: nobody else can open the folder of our socket."""
        with socket(AF_UNIX) as client:
            client.connect(self._forkserver_address)
            status, child_status = os.pipe()
            child_data, data = os.pipe()
            alive, tracker = self._forkserver_alive_fd, resource_tracker.getfd()
            assert alive is not None and tracker is not None
            try:
                sendfds(client, [child_data, child_status, alive, tracker, *fds])
            except BaseException:
                _close(status, data)
                raise
            finally:
                _close(child_status, child_data)
        return status, data

    def is_ready(self) -> bool:
        """Whether it runs, can be reached, and is what a server started now would
        be."""
        ended = (
            self.process.poll() is not None
            if self.process
            else self.pid != os.getppid()
        )
        return (
            not ended
            and os.path.exists(self._forkserver_address)
            and self.inherited == _now()
        )

    def start(self) -> bool:
        """Start it, instead of the one there was, and return whether that succeeded."""
        self.stop()
        long = len(os.fsencode(tempfile.gettempdir())) > _LONGEST
        self.folder = tempfile.mkdtemp(
            prefix="d2l-mgpu-server-", dir="/tmp" if long else None
        )
        self._forkserver_address = f"{self.folder}/socket"
        self.inherited = _now()
        alive, self._forkserver_alive_fd = os.pipe()
        with socket(AF_UNIX) as listener, open(alive, "rb"):
            listener.bind(self._forkserver_address)
            listener.listen()
            code = _COMMAND.format(sys.path, listener.fileno(), alive, self.folder)
            flags: list[str] = util._args_from_interpreter_flags()  # type: ignore[attr-defined]
            self.process = subprocess.Popen(
                [spawn.get_executable(), *flags, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[listener.fileno(), alive],
                start_new_session=True,  # a Ctrl-C is not meant for it
            )
        self.pid = self.process.pid
        assert self.process.stdout is not None and self.process.stderr is not None
        with self.process.stdout as answer, self.process.stderr as last_words:
            if connection.wait([answer.fileno()], _PATIENCE) and answer.read(1):
                return True
            self.process.kill()
            said = last_words.read().decode(errors="replace")
        self.stop()
        if fatal := re.search("^Fatal Python error: .*", said, re.MULTILINE):
            raise RuntimeError(f"a new Python process says: {fatal[0]}")
        return False

    def stop(self) -> None:
        """Let it end, and wait for that if this process has started it."""
        started, folder = self.process, self.folder
        self._let_go()
        if started:
            try:
                started.wait(5)
            except subprocess.TimeoutExpired:  # somebody else still holds the pipe
                started.kill()
                started.wait()
        if folder:
            rmtree(folder, ignore_errors=True)  # it was killed, or never started

    def forget(self) -> None:
        """In a child that somebody has forked: have no server, and do not keep the
        parent's."""
        if self.process:
            self.process.returncode = 0  # it is not ours to wait for
        self._let_go()

    def _let_go(self) -> None:
        if self._forkserver_alive_fd is not None:
            os.close(self._forkserver_alive_fd)
        self._forkserver_address, self._forkserver_alive_fd = "", None
        self.pid, self.folder, self.process = 0, "", None

    def adopt(self) -> None:
        """In a rank: let what it launches come from the server that it came from
        itself."""
        common: Any = forkserver._forkserver
        if common._forkserver_alive_fd is not None:
            self._forkserver_address = common._forkserver_address
            self._forkserver_alive_fd = common._forkserver_alive_fd
            # not to programs of the rank
            os.set_inheritable(common._forkserver_alive_fd, False)
            self.pid, self.inherited = os.getppid(), _now()


def _now() -> Any:
    """Return what a server has for good from when it is started: code, and what a
    process inherits from its caller."""
    package = Path(__file__).parent.parent
    files = {path: path.stat().st_mtime_ns for path in package.glob("**/*.py")}
    environment = {
        name: value for name, value in os.environ.items() if _READ_ONCE.match(name)
    }
    status = Path("/proc/self/status").read_text().splitlines()
    umask = [line for line in status if line.startswith("Umask")]
    limits = Path("/proc/self/limits").read_text()
    return files, environment, umask, limits, os.sched_getaffinity(0)


def _close(*pipes: int) -> None:
    for pipe in pipes:
        os.close(pipe)


class _Popen(popen_forkserver.Popen):
    """multiprocessing's, but for the server that it asks."""

    _fds: list[int]

    def _launch(self, process_obj: Any) -> None:
        data = io.BytesIO()
        context.set_spawning_popen(self)
        try:
            dump(spawn.get_preparation_data(process_obj._name), data)
            dump(process_obj, data)
        finally:
            context.set_spawning_popen(None)
        self.sentinel, pipe = SERVER.connect_to_new_process(self._fds)
        while_here = os.dup(pipe)  # closes when this process ends: so the rank knows
        self.finalizer = util.Finalize(self, _close, (while_here, self.sentinel))
        with open(pipe, "wb") as file:
            file.write(data.getbuffer())
        self.pid = forkserver.read_signed(self.sentinel)


class _Process(process.BaseProcess):
    _start_method = "d2l_mgpu"
    _Popen = staticmethod(_Popen)


class _Context(context.BaseContext):
    _name = "d2l_mgpu"
    Process = _Process


SERVER = _Server()
_contexts: dict[str, Any] = vars(context)["_concrete_contexts"]
_contexts["d2l_mgpu"] = _Context()  # by this name: the elastic agent takes nothing else
os.register_at_fork(after_in_child=SERVER.forget)
atexit.register(SERVER.stop)
