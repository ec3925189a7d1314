"""The package imports with torch and numpy alone, and offers every public name at its top."""

import subprocess
import sys

import d2l_mgpu

NOT_AT_IMPORT = ["d2l", "IPython", "matplotlib", "torchvision", "cloudpickle", "pandas"]


def test_importing_the_package_imports_torch_and_numpy_only():
    code = f"import sys, d2l_mgpu; print([m for m in {NOT_AT_IMPORT} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_importable_from_the_package_and_documented():
    for name in d2l_mgpu.__all__:
        assert getattr(d2l_mgpu, name).__doc__, name
