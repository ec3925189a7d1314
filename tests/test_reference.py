"""The reference page describes the whole public package, and nothing else."""

import inspect
import pkgutil
import re
from types import ModuleType

import pytest

import d2l_mgpu
from book.facts import ROOT

PAGE = (ROOT / "chapters" / "reference.md").read_text(encoding="utf-8")
DIRECTIVES = re.findall(r"^\.\. (?:auto\w+|py:data):: ([\w.]+)$", PAGE, re.MULTILINE)
DESCRIBED = [name.removeprefix("d2l_mgpu.") for name in DIRECTIVES]


def test_every_public_name_is_described_once():
    counts = {name: DESCRIBED.count(name) for name in d2l_mgpu.__all__}
    assert counts == dict.fromkeys(d2l_mgpu.__all__, 1)


@pytest.mark.parametrize("name", DESCRIBED)
def test_what_the_page_describes_exists_and_says_what_it_is(name):
    found = pkgutil.resolve_name(f"d2l_mgpu.{name}")
    if callable(found) or isinstance(found, ModuleType):
        assert inspect.getdoc(found), f"{name} has no docstring"


def test_the_page_is_not_a_notebook():
    assert "kernelspec" not in PAGE
    assert "{code-cell}" not in PAGE
