"""Sources: whatever can be iterated."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyecho._core import ConfigError, EchoError

CHUNK_BYTES = 1 << 20


class SourceTimer:
    """Seconds spent inside a source."""

    def __init__(self) -> None:
        self.seconds = 0.0


def timed(source: Iterator[Any], timer: SourceTimer) -> Iterator[Any]:
    """Yield the items of `source` and add the time it takes to `timer`."""
    clock = time.perf_counter
    while True:
        began = clock()
        try:
            item = next(source)
        except StopIteration:
            return
        finally:
            timer.seconds += clock() - began
        yield item
        del item  # the source may count on being the only one that keeps it


def first_item(items: Iterator[Any], source: Any) -> Any:
    """Return the first item, or raise `EchoError` with the likely reason why there is none."""
    try:
        return next(items)
    except StopIteration:
        pass
    if iter(source) is source:
        reason = (
            "it is an iterator and has been read to its end; for several epochs pass something "
            "that can be iterated again (a list, a Dataset, a DataLoader, an object with __iter__)"
        )
    else:
        reason = "check its length and its filters"
    raise EchoError(f"the source ({type(source).__name__}) yielded nothing: {reason}")


def checked_source(source: Any) -> Any:
    """Return `source` if it can be iterated, else raise `ConfigError`."""
    if isinstance(source, np.ndarray) and source.ndim == 0:
        raise ConfigError(
            "the source is an array of no axes; its first axis must be that of the items"
        )
    if isinstance(source, Mapping | str | bytes):
        raise ConfigError(
            f"the source is a {type(source).__name__}, whose items would be its "
            f"{'keys' if isinstance(source, Mapping) else 'characters'}; pass what yields one "
            "example or batch after the other, such as a list of dicts"
        )
    if hasattr(source, "__iter__") or hasattr(source, "__getitem__"):
        return source
    hint = "; call it and pass what it returns" if callable(source) else ""
    raise ConfigError(
        f"the source must be iterable (a list, an array, a generator, a DataLoader), "
        f"got {type(source).__name__}{hint}"
    )


def row_chunks(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the rows of an array in chunks of about a megabyte, read in if memory-mapped."""
    row_bytes = max(1, array.itemsize * int(np.prod(array.shape[1:])))
    rows = max(1, CHUNK_BYTES // row_bytes)
    for start in range(0, len(array), rows):
        chunk = array[start : start + rows]
        yield np.array(chunk) if isinstance(array, np.memmap) else chunk
