"""Planting a fault: a text of the package's source is replaced, and what comes out is executed."""

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any


def planted(whole: ModuleType | Callable, right: str, wrong: str) -> dict[str, Any]:
    """The names of a module in which the source of `whole`, the module or a function of it, has
    `wrong` where `right` stands, which it does once."""
    source, module = inspect.getsource(whole), inspect.getmodule(whole)
    assert source.count(right) == 1, source
    names = {"__name__": "planted"} if whole is module else dict(vars(module))
    exec(source.replace(right, wrong), names)
    return names
