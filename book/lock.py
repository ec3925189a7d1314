"""Lock what the environments hold: `python -m book.lock` (`make lock`).

requirements.txt is what a person reads; a lock is what `make` installs: those packages and all that
they need, each in one version, with the hashes of its files, for every Python and system that the
book promises. A version changes only where the requirements say so, or with `--upgrade`.
"""

import subprocess
import sys
from pathlib import Path

from book.config import ROOT, d2l_requirement
from book.execution import mxnet_kernel

LOCK = ROOT / "requirements.lock"
OLDEST = "3.11"
# Without builds, which would fetch what builds them without a hash; without an index, which is
# the reader's choice.
OPTIONS = (
    *("--universal", "--generate-hashes", "--only-binary=:all:", "--emit-build-options"),
    *("--no-emit-index-url", "--no-emit-find-links", "--python-version", OLDEST, "--quiet"),
    *("--custom-compile-command", "make lock"),
)


def write(lock: Path, requirements: Path, others: list[str], *options: str) -> None:
    """Write a lock of the requirements in a file and of `others`.

    uv takes the versions that the lock holds where they still fit. Its setting in pyproject.toml
    says that d2l needs nothing. Raises CalledProcessError, and uv says why, when nothing fits.
    """
    command = [sys.executable, "-m", "uv", "pip", "compile", *OPTIONS, *options]
    subprocess.run(
        [*command, str(requirements.relative_to(ROOT)), "-", "--output-file", str(lock)],
        cwd=ROOT,
        input="\n".join(others),
        text=True,
        stdout=subprocess.DEVNULL,  # the lock itself
        check=True,
    )


def main(*options: str) -> None:
    """Write both locks."""
    d2l = d2l_requirement().removeprefix("--no-deps ")
    write(LOCK, ROOT / "requirements.txt", [d2l], *options)
    write(mxnet_kernel.LOCK, mxnet_kernel.REQUIREMENTS, mxnet_kernel.packages(), *options)


if __name__ == "__main__":
    main(*sys.argv[1:])
