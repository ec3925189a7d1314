"""The Gluon edition is tested in its own environment; without MXNet, one line says what to do."""

import os
import subprocess
import sys

import pytest

from book.execution.mxnet_kernel import mxnet_python
from tests.support import ROOT


@pytest.mark.slow
def test_the_package_in_gluon_passes_its_tests_in_its_own_environment():
    python = mxnet_python()
    if python is None:
        message = "needs the environment of the Gluon edition, which is not on this machine"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    done = subprocess.run(
        # The other conftest.py need packages that this environment may lack.
        [
            python,
            "-m",
            "pytest",
            "-q",
            "--disable-warnings",
            "--confcutdir",
            "tests/gluon",
            "tests/gluon",
        ],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout


def test_without_mxnet_one_line_says_how_to_get_it():
    hide = "import sys; sys.modules['mxnet'] = None; import d2l_mgpu.gluon"
    done = subprocess.run([sys.executable, "-c", hide], cwd=ROOT, capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: d2l_mgpu.gluon needs MXNet")
    assert 'pip install "mxnet==1.9.1" "numpy==1.23.5"' in last and "Python 3.11" in last


def test_the_package_does_not_import_its_gluon_part():
    code = "import sys, d2l_mgpu; print([m for m in sys.modules if 'gluon' in m or 'mxnet' in m])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
