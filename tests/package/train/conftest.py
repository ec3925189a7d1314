"""What the tests of `d2l_mgpu.train` share."""

from collections.abc import Callable

import pytest

from d2l_mgpu.train import main


@pytest.fixture
def answer(capfd: pytest.CaptureFixture[str]) -> Callable[[list[str]], str]:
    """What `main` prints before it ends with exit code 2: one line, after those about the data."""

    def of(options: list[str]) -> str:
        with pytest.raises(SystemExit) as ended:
            main(options)
        assert ended.value.code == 2
        out, err = capfd.readouterr()
        assert out == ""
        lines = [line for line in err.splitlines() if line.startswith("d2l_mgpu.train: ")]
        assert len(lines) == 1 and lines[0] == err.splitlines()[-1] and "Traceback" not in err
        return lines[0]

    return of
