"""The environment of the Gluon edition, and its kernel: `make` makes them where they are missing.

MXNet's last release needs numpy 1.23 and so Python 3.11, while the book runs on newer ones. Hence
an environment and a kernel of its own. Where no Python 3.11 is at hand there is neither, and the
pages show the outputs that the committed notebooks hold (book/execution/saved_outputs.py).
"""

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from book.config import ROOT

KERNEL = "d2l-mgpu-mxnet"  # readers may have another one called mxnet
VERSION = (3, 11)
FOLDER = ROOT / ".venv-mxnet"
PYTHON = FOLDER / "bin" / "python"
READY = FOLDER / ".ready"  # the environment is complete
REQUIREMENTS = ROOT / "requirements-mxnet.txt"
LOCK = ROOT / "requirements-mxnet.lock"  # what they come to, written by book/lock.py
# What the Gluon edition needs of the book's other pins
SHARED = {"torch", "torchvision", "cloudpickle", "tqdm", "ipykernel", "pytest", "pytest-timeout"}
FACTS = """
import json, mxnet, platform
from d2l_mgpu.gluon import describe, get_devices
devices = describe(get_devices(max(1, mxnet.context.num_gpus()), quiet=True))
print(json.dumps({"framework": f"MXNet {mxnet.__version__}", "devices": devices,
                  "python": platform.python_version()}))
"""


def mxnet_python() -> Path | None:
    """The Python of the environment; None where it could not be made."""
    return PYTHON if READY.exists() else None


def is_current() -> bool:
    """Whether the environment is complete, known to the book's one, and as the lock says."""
    changed = max(path.stat().st_mtime for path in (LOCK, ROOT / "pyproject.toml"))
    kernel = Path(sys.prefix, "share", "jupyter", "kernels", KERNEL)
    return READY.exists() and kernel.exists() and READY.stat().st_mtime >= changed


def facts() -> dict[str, str]:
    """What the Gluon edition runs on here."""
    return json.loads(subprocess.check_output([PYTHON, "-c", FACTS], cwd=ROOT, text=True))


def find_python() -> str | None:
    """A Python 3.11 to make the environment of: the book's own, or one on the path."""
    if sys.version_info[:2] == VERSION:
        return sys.executable
    return shutil.which("python{}.{}".format(*VERSION))


def packages() -> list[str]:
    """The pins of the book that hold here too."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.partition("#")[0].strip() for line in lines]
    return [pin for pin in pins if pin.partition("==")[0] in SHARED]


def run(*command: str | Path) -> None:
    """Run a command quietly; RuntimeError with the last line it printed when it fails."""
    result = subprocess.run(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if result.returncode:
        raise RuntimeError(result.stdout.strip().rpartition("\n")[2])


def make(python: str) -> None:
    """Make the environment and the kernel, which the book's environment then knows."""
    run(python, "-m", "venv", "--clear", FOLDER)
    if sys.version_info[:2] == VERSION:  # then the book's packages need not be there twice
        paths = sysconfig.get_paths(vars={"base": str(FOLDER), "platbase": str(FOLDER)})
        Path(paths["purelib"], "book.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip: list[str | Path] = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check"]
    run(*pip, "--no-deps", "--require-hashes", "-r", LOCK)
    run(*pip, "--no-deps", "-e", ROOT)
    kernel: list[str | Path] = ["--prefix", sys.prefix, "--name", KERNEL, "--display-name", "MXNet"]
    run(PYTHON, "-m", "ipykernel", "install", *kernel)
    READY.touch()


def main() -> None:
    """Make what can be made here, and say in one line what it is, or why there is nothing."""
    if is_current():
        return
    found = find_python()
    if found is None:
        print("MXNet needs a python3.11, and none is on the PATH: its pages show saved outputs.")
        return
    print("Making .venv-mxnet, the environment of the Gluon edition", flush=True)
    try:
        make(found)
    except (RuntimeError, OSError) as error:
        print(f"MXNet cannot be installed, so its pages show saved outputs: {error}")
    finally:
        if not READY.exists():  # half an environment is worse than none
            shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    main()
