"""Where there is no MXNet, and none can be installed, one line says so."""

import sys
from pathlib import Path

import pytest

from book.execution import mxnet_kernel


def test_where_there_is_no_python_for_mxnet_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mxnet_kernel, "is_current", lambda: False)
    monkeypatch.setattr(mxnet_kernel.sys, "version_info", (3, 13, 0))
    monkeypatch.setenv("PATH", "")
    mxnet_kernel.main()
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "python3.11" in said


def test_where_mxnet_cannot_be_installed_one_line_says_so_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "requirements-mxnet.lock"
    lock.write_text(f"mxnet==0.0.0 --hash=sha256:{64 * '0'}\n")
    monkeypatch.setattr(mxnet_kernel, "find_python", lambda: sys.executable)
    monkeypatch.setattr(mxnet_kernel, "LOCK", lock)
    monkeypatch.setattr(mxnet_kernel, "FOLDER", tmp_path / "environment")
    monkeypatch.setattr(mxnet_kernel, "PYTHON", tmp_path / "environment/bin/python")
    monkeypatch.setattr(mxnet_kernel, "READY", tmp_path / "environment/.ready")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    mxnet_kernel.main()
    said = capsys.readouterr().out
    assert said.count("\n") == 2 and "No matching distribution found for mxnet==0.0.0" in said
    assert not (tmp_path / "environment").exists()
