"""What `launch` leaves as it was in the process that calls it, whatever happens and
however often Ctrl-C is pressed."""

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import active_children, resource_tracker
from typing import Any


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put a Ctrl-C off until the block has ended."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(
        handler
    ):
        yield  # no Ctrl-C comes here as an exception
        return
    pressed = False

    def remember(*_: Any) -> None:
        nonlocal pressed
        pressed = True

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if pressed:
            handler(signal.SIGINT, None)


@contextmanager
def caller_as_before() -> Iterator[None]:
    """Give the caller its `__main__`, loggers, environment and children back
    unchanged."""
    import torch.distributed.elastic.agent.server.local_elastic_agent  # noqa: F401  # makes loggers

    main: dict[str, Any] = vars(sys.modules["__main__"])
    names: tuple[str, ...] = ("__file__", "__spec__")
    hidden = {name: main[name] for name in names if name in main}
    # else the agent opens a port for nobody
    switch = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    was_switched = os.environ.get(switch)
    loggers = [
        logging.getLogger(name)
        for name in list(logging.root.manager.loggerDict)
        if name.startswith(("torch.distributed", "torch.multiprocessing"))
    ]
    silent = {logger: logger.disabled for logger in loggers}
    # multiprocessing starts a process that cleans up after it, and lets that run on
    tracker: Any = resource_tracker._resource_tracker
    was_tracking = tracker._fd is not None  # a rank uses the one of its own caller
    try:
        for name in hidden:
            del main[name]
        main["__spec__"] = None  # spawned processes now have no script to run again
        os.environ[switch] = "1"
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        with uninterrupted():
            main.update(hidden)
            for logger, was_silent in silent.items():
                logger.disabled = was_silent
            os.environ.pop(switch)
            if was_switched is not None:
                os.environ[switch] = was_switched
            gc.collect()  # the agent's semaphores still need the tracker
            # another thread's may be using it
            if not (was_tracking or active_children()):
                # a caller that ignores SIGCHLD has no children
                with suppress(ChildProcessError):
                    tracker._stop()
