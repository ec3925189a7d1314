"""The pinned requirements can be installed on every Python that the book promises."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import ROOT

# The Python that runs this has installed them already
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHERS = [version for version in ("3.11", "3.12", "3.13", "3.14") if version != HERE]
OPTIONS = ["--quiet", "--dry-run", "--ignore-installed", "--only-binary=:all:"]


@pytest.fixture(scope="module")
def dry_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.Popen[str]]:
    """pip's dry run for every other version, all at the same time, for each takes a minute."""
    folder: Path = tmp_path_factory.mktemp("nothing")
    pip = [sys.executable, "-m", "pip", "install", *OPTIONS, "--target", str(folder)]
    return {
        version: subprocess.Popen(
            [*pip, "--python-version", version, "-r", str(ROOT / "requirements.txt")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for version in OTHERS
    }


@pytest.mark.parametrize("version", OTHERS)
def test_the_requirements_resolve_on_python(
    version: str, dry_runs: dict[str, subprocess.Popen[str]]
) -> None:
    output, _ = dry_runs[version].communicate(timeout=600)
    assert dry_runs[version].returncode == 0, output


def test_the_pins_of_mxnet_are_what_the_package_accepts() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    accepted = [Requirement(text) for text in project["optional-dependencies"]["gluon"]]
    lines = (ROOT / "requirements-mxnet.txt").read_text(encoding="utf-8").splitlines()
    texts = [text for line in lines if (text := line.partition("#")[0].strip())]
    pins = {name: version for name, _, version in (text.partition("==") for text in texts)}
    assert pins.keys() == {requirement.name for requirement in accepted}
    for requirement in accepted:
        assert pins[requirement.name] in requirement.specifier
