"""A fixture of the package's tests."""

import pytest

from d2l_mgpu.data.fashion_mnist import say_once


@pytest.fixture(autouse=True)
def images_are_announced_again() -> None:
    """Each test is a program of its own, which says once what its images are."""
    say_once.cache_clear()
