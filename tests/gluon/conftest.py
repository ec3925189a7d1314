"""MXNet's CPU mixes contexts without a word; a GPU does not, and so do these tests not."""

from collections.abc import Callable
from typing import Any

import pytest
from mxnet import np

OPERATORS = ("add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "truediv", "matmul", "eq")


@pytest.fixture(autouse=True)
def no_operator_mixes_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (f"__{operator}__" for operator in OPERATORS):
        original = getattr(np.ndarray, name)

        def checked(self: Any, other: Any, original: Callable = original) -> Any:
            assert not isinstance(other, np.ndarray) or self.ctx == other.ctx, "contexts are mixed"
            return original(self, other)

        monkeypatch.setattr(np.ndarray, name, checked)
