"""Arguments that cannot be right are refused, in one sentence that names them."""

import math
import numbers
import operator
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def integer(
    name: str, value: Any, *, least: int = 1, most: int = 2**40, more: str = ""
) -> int:
    """Return `value` as an int where it is an integer, also one of NumPy, from `least`
    to `most`.

    Raises ValueError for anything else, 2.0, '2' and True included; `more` goes on with
    what it says.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise ValueError(
            f"{name} must be an integer of at least {least}, but it is {value!r}{more}."
        )
    if number > most:
        raise ValueError(f"{name} must be at most {most:,}, but it is {number}{more}.")
    return number


def not_negative(name: str, value: Any) -> float:
    """Return `value`, such as a learning rate, where it is a finite number of at least
    0.

    Raises ValueError for anything else, NaN and '0.1' included.
    """
    try:
        found = float(value) if isinstance(value, numbers.Real) else -1.0
    except OverflowError:  # an integer beyond all floats
        found = math.inf
    if not 0 <= found < math.inf:
        raise ValueError(
            f"{name} must be a finite number of at least 0, but it is {value!r}."
        )
    return found


def check_data(train_iter: Iterable, test_iter: Iterable) -> None:
    """Raise ValueError for an iterator, such as a generator, which is used up after one
    epoch."""
    for what, batches in (("training", train_iter), ("test", test_iter)):
        if isinstance(batches, Iterator):
            raise ValueError(
                f"The {what} data is a {type(batches).__name__}, which can be looped "
                "over only once, but each epoch needs all of it: let load_data return "
                "a list or a DataLoader."
            )


def batches_of(batches: Iterable[T]) -> Iterator[T]:
    """Go through `batches`; raise ValueError if one is not a pair (X, y), or if there
    is none."""
    empty = True
    for batch in batches:
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise ValueError(
                "Each batch must be a pair (X, y), but the data, a "
                f"{type(batches).__name__}, holds a {type(batch).__name__}"
                + (f" of {len(batch)}." if isinstance(batch, list | tuple) else ".")
            )
        empty = False
        yield batch
    if empty:
        raise ValueError(
            f"The data, a {type(batches).__name__}, holds no batch: it is empty, or an "
            "iterator that is used up."
        )
