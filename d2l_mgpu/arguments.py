"""Arguments that cannot be right are refused, in one sentence that names them."""

import operator
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def integer(name: str, value: Any, *, least: int = 1, more: str = "") -> int:
    """Return `value` as an int where it is an integer, also one of NumPy, of at least `least`.

    Raises ValueError for anything else, 2.0, '2' and True included; `more` goes on with what it
    says.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise ValueError(
            f"{name} must be an integer of at least {least}, but it is {value!r}{more}."
        )
    return number


def check_data(train_iter: Iterable, test_iter: Iterable) -> None:
    """Raise ValueError for an iterator, such as a generator, which is used up after one epoch."""
    for what, batches in (("training", train_iter), ("test", test_iter)):
        if isinstance(batches, Iterator):
            raise ValueError(
                f"The {what} data is a {type(batches).__name__}, which can be looped over only "
                "once, but each epoch needs all of it: let load_data return a list or a DataLoader."
            )


def batches_of(batches: Iterable[T]) -> Iterator[T]:
    """Go through `batches`; raise ValueError in the end if there was none."""
    empty = True
    for batch in batches:
        empty = False
        yield batch
    if empty:
        raise ValueError(
            f"The data, a {type(batches).__name__}, holds no batch: it is empty, or an iterator "
            "that is used up."
        )
