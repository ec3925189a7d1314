"""What the tests of the data share."""

import sys
from pathlib import Path

import pytest
from torchvision import datasets

from d2l_mgpu.data import real_images


@pytest.fixture(autouse=True)
def nothing_outside_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable, no folder of this machine and no server outside takes part in these tests."""
    monkeypatch.delenv("D2L_MGPU_DATA", raising=False)
    monkeypatch.delenv("D2L_MGPU_SOURCE", raising=False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setattr(real_images, "USUAL_FOLDER", tmp_path / "usual")
    for dataset in (datasets.FashionMNIST, datasets.MNIST):
        monkeypatch.setattr(dataset, "mirrors", ["http://127.0.0.1:9/"])  # nothing listens there
