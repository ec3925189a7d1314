"""The fork server of `launch`, inside: it has imported what every rank needs, and
waits.

It must not compute: threads that a library starts for that would be missing in the
copies.
"""

import gc
import os
import tempfile
from multiprocessing import forkserver
from pathlib import Path
from shutil import rmtree

# A rank is sent references into these. Of torch only what every rank uses: the first
# launch waits.
import cloudpickle  # noqa: F401
import torch.distributed.elastic.agent.server.local_elastic_agent  # noqa: F401

import d2l_mgpu.processes.fork_server
import d2l_mgpu.processes.worker  # noqa: F401


def serve(listener: int, alive: int, folder: str) -> None:
    """Say on standard output that all is imported, then fork a rank for whoever
    connects to the socket `listener`, until nobody holds the other end of the pipe
    `alive`: until the caller and its ranks have ended, however they did. Remove
    `folder` and end."""
    try:
        os.write(1, b"!")  # an error if the caller was killed meanwhile
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        os.chdir("/")  # the folder that the caller was in may be removed
        os.environ.clear()  # a rank has its caller's, as that is when the rank starts
        tempfile.tempdir = None  # it may have been looked up in the environment
        # a collection in a rank would write into, and so copy, what it shares with us
        gc.freeze()
        forkserver.main(listener, alive, [])
    finally:  # a rank does not come here
        rmtree(folder, ignore_errors=True)
        os._exit(0)  # at once: the caller waits for us
