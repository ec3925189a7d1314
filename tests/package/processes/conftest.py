"""What the tests of processes share."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.nodes import Node, missing, network


@pytest.fixture
def make_nodes() -> Iterator[Callable[[int], list[Node]]]:
    """Makes nodes, which are gone after the test."""
    if problem := missing():
        pytest.fail(problem) if os.environ.get("CI") else pytest.skip(problem)
    with ExitStack() as stack:
        yield lambda count: stack.enter_context(network(count))
