"""Checks of the exercises that code can decide; one module of checkers per chapter.

`check("shard-weights", my_function)` runs a reader's attempt and prints whether it is
right, and if not, on which input it went wrong and what it gave. A checker is a
function decorated with `@exercise(name)`: it takes the attempt, and either raises
`Wrong` with one sentence that helps or returns a sentence that says what was verified.
"""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

Checker = Callable[[Any], str]
CHECKERS: dict[str, Checker] = {}


class Wrong(Exception):
    """An attempt that does not solve its exercise; the message says how it was seen."""


def exercise(name: str) -> Callable[[Checker], Checker]:
    """Register the decorated function as the checker of exercise `name`."""

    def register(checker: Checker) -> Checker:
        CHECKERS[name] = checker
        return checker

    return register


def check(name: str, attempt: Any) -> None:
    """Print whether `attempt` solves the exercise `name`, and what was seen where it
    does not.

    An error inside the attempt is reported like a wrong answer, with its type. Raises
    ValueError when there is no exercise of that name.
    """
    # every chapter's checkers register themselves
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    if name not in CHECKERS:
        raise ValueError(
            f"There is no exercise {name!r} to check; there are {sorted(CHECKERS)}."
        )
    try:
        print(f"Right: {CHECKERS[name](attempt)}")
    except Wrong as wrong:
        print(f"Not yet: {wrong}")
    except Exception as error:
        print(f"Not yet: your code raised {type(error).__name__}: {error}")
