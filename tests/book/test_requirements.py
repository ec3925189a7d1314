"""The pinned requirements can be installed on every Python that the book promises."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from book.execution import mxnet_kernel
from tests.support import ROOT

# The Python that runs this has installed them already
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHERS = [version for version in ("3.11", "3.12", "3.13", "3.14") if version != HERE]
ALL = {version: (version, "-r", ROOT / "requirements.txt") for version in OTHERS}
# Beside a newer Python, the environment of MXNet needs copies of some of the book's packages.
ALL["3.11 with MXNet"] = ("3.11", "-r", mxnet_kernel.REQUIREMENTS, *mxnet_kernel.packages())
OPTIONS = ["--quiet", "--dry-run", "--ignore-installed", "--only-binary=:all:"]


@pytest.fixture(scope="module")
def dry_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.Popen[str]]:
    """pip's dry runs, all at the same time, for each takes a minute."""
    folder: Path = tmp_path_factory.mktemp("nothing")
    pip = [sys.executable, "-m", "pip", "install", *OPTIONS, "--target", str(folder)]
    return {
        name: subprocess.Popen(
            [*pip, "--python-version", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name, arguments in ALL.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_the_requirements_resolve_on_python(
    name: str, dry_runs: dict[str, subprocess.Popen[str]]
) -> None:
    output, _ = dry_runs[name].communicate(timeout=600)
    assert dry_runs[name].returncode == 0, output


def test_the_pins_of_mxnet_are_what_the_package_accepts() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    accepted = [Requirement(text) for text in project["optional-dependencies"]["gluon"]]
    lines = (ROOT / "requirements-mxnet.txt").read_text(encoding="utf-8").splitlines()
    texts = [text for line in lines if (text := line.partition("#")[0].strip())]
    pins = {name: version for name, _, version in (text.partition("==") for text in texts)}
    assert pins.keys() == {requirement.name for requirement in accepted}
    for requirement in accepted:
        assert pins[requirement.name] in requirement.specifier
