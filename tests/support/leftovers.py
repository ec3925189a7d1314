"""What the tests of processes compare: the state of this process before and after."""

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

SET_BY_TESTS = ("PYTEST_CURRENT_TEST", "D2L_MGPU_START")


def state_of_this_process() -> dict[str, Any]:
    this = psutil.Process()
    return {
        "children": this.children(recursive=True),
        "ports": [c.laddr for c in this.net_connections() if c.status == psutil.CONN_LISTEN],
        "open files": this.num_fds(),
        "threads": threading.enumerate(),
        "files": os.listdir(tempfile.gettempdir()),
        "signal handlers": {s: signal.getsignal(s) for s in signal.valid_signals()},
        "environment": {k: v for k, v in os.environ.items() if k not in SET_BY_TESTS},
        "main": {
            name: vars(sys.modules["__main__"]).get(name) for name in ("__file__", "__spec__")
        },
    }


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # the timeout of the test ends it
        time.sleep(0.05)


def runs(process: psutil.Process) -> bool:
    """Whether it still does anything: one that waits to be reaped does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
