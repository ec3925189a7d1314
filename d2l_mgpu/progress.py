"""Progress where somebody watches: a terminal or a notebook. A log stays free of it."""

import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from d2l_mgpu.arguments import batches_of

T = TypeVar("T")


def is_watched() -> bool:
    """Whether somebody watches this process: standard error is a terminal, or this is a
    notebook.

    Nobody does where TQDM_DISABLE is set, as it is when the book is executed.
    """
    if os.environ.get("TQDM_DISABLE"):
        return False
    ipython = sys.modules.get("IPython")
    in_notebook = ipython is not None and hasattr(ipython.get_ipython(), "kernel")
    return in_notebook or bool(sys.stderr and sys.stderr.isatty())


def with_progress(batches: Iterable[T], epoch: int) -> Iterator[T]:
    """Go through the `batches` of an epoch, as `batches_of` does; show how far, if
    `is_watched`.

    The bar goes away with the last batch.
    """
    if not is_watched():
        yield from batches_of(batches)
        return
    with warnings.catch_warnings():
        # without ipywidgets there is a bar of characters
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm
    total = len(batches) if isinstance(batches, Sized) else None
    with tqdm(
        desc=f"epoch {epoch}", total=total, unit="step", leave=False, disable=False
    ) as bar:
        for batch in batches_of(batches):
            yield batch
            bar.update()
