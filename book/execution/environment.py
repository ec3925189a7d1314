"""What the cells of the chapters run in: d2l, one source of data, so many cores, kernels."""

import importlib.util
import os
import shutil

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

from book.config import ROOT, d2l_requirement

SOURCE = "D2L_MGPU_SOURCE"
OWN_KERNEL = "python3"  # of the environment that builds the book


def missing_d2l() -> str | None:
    """One line that says what to type when d2l is not installed; None when it is."""
    if importlib.util.find_spec("d2l"):
        return None
    return f"The chapters use d2l, which is not installed. Type: pip install {d2l_requirement()}"


def pin_environment(source: str | None = None) -> str:
    """Let kernels started from here import this checkout, compute on one core, unless the
    environment says otherwise, show no progress, and read one data source; return that.

    `source` overrides the environment; without either the generated images are used.
    """
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["TQDM_DISABLE"] = "1"
    os.environ[SOURCE] = source or os.environ.get(SOURCE) or "generated"
    return os.environ[SOURCE]


def cores() -> int:
    """The cores that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)  # not everywhere
    return len(usable(0)) if usable else os.cpu_count() or 1


def has_kernel(name: str) -> bool:
    """Whether notebooks can be executed with a kernel here."""
    try:
        command, *_ = KernelSpecManager().get_kernel_spec(name).argv
    except NoSuchKernel:
        return False
    return shutil.which(command) is not None
