"""The reference page describes the whole public package, and nothing else."""

import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest
from sphinx.ext.autodoc.mock import mock

import d2l_mgpu
from book.config import ROOT

PAGE = (ROOT / "chapters" / "reference.md").read_text(encoding="utf-8")
DIRECTIVES = re.findall(r"^\.\. (?:auto\w+|py:data):: ([\w.]+)$", PAGE, re.MULTILINE)
DESCRIBED = [name.removeprefix("d2l_mgpu.") for name in DIRECTIVES]


@pytest.fixture(scope="module", autouse=True)
def mocked_mxnet() -> Iterator[None]:
    """As for the page: the book's environment has no MXNet. Afterwards nothing of it is left."""
    with mock(["mxnet"]):
        yield
    for name in [name for name in sys.modules if name.startswith("d2l_mgpu.gluon")]:
        del sys.modules[name]
    del d2l_mgpu.gluon


def test_every_public_name_is_described_once():
    gluon = import_module("d2l_mgpu.gluon")
    names = [*d2l_mgpu.__all__, *(f"gluon.{name}" for name in gluon.__all__)]
    counts = {name: DESCRIBED.count(name) for name in names}
    assert counts == dict.fromkeys(names, 1)


@pytest.mark.parametrize("name", DESCRIBED)
def test_what_the_page_describes_exists_and_says_what_it_is(name):
    found = pkgutil.resolve_name(f"d2l_mgpu.{name}")
    if callable(found) or isinstance(found, ModuleType):
        assert inspect.getdoc(found), f"{name} has no docstring"


def test_the_page_is_not_a_notebook():
    assert "kernelspec" not in PAGE
    assert "{code-cell}" not in PAGE
