"""What the tests of the exercises share."""

from collections.abc import Callable

import pytest

from d2l_mgpu import check


@pytest.fixture
def verdict(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What `check` prints about an attempt."""

    def of(name: str, attempt: Callable) -> str:
        check(name, attempt)
        return capsys.readouterr().out

    return of
