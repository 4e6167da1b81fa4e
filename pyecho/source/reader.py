"""Readers of one pass over a source.

A reader is an iterator that loses nothing when Ctrl-C interrupts it, so none is a generator: an
exception ends a generator for good, and with it the pass. Python raises `KeyboardInterrupt` in the
main thread at calls, at the begin of functions and at backward jumps, but not between them. So a
reader advances only after it has its item, and then returns it without another call. An item that
must survive a call is kept in a list: ``list.extend(islice(items, 1))`` both takes and keeps it.
``for item in items: return item`` takes one without a call; ``next(items)`` would be one.

Iterators of C's own (of lists, arrays, `zip`, `map` of a C function) need no reader: no Python code
runs in them. They must not be put around a reader: `chain` and `islice` end with any exception.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from pyecho._core import CheckpointError, ConfigError
from pyecho.items.rows import rows_of
from pyecho.source.sniff import is_record_batch

CHUNK_BYTES = 1 << 20  # of rows that are read at a time


class Indexed(Iterator[Any]):
    """Yields ``get(index)`` for `start` and each multiple of `step` after it, below `stop`."""

    def __init__(self, get: Callable[[int], Any], start: int, stop: int, *, step: int = 1) -> None:
        self._get = get
        self._index = start
        self._stop = stop
        self._step = step

    def __next__(self) -> Any:
        """Return the next item."""
        index = self._index
        if index >= self._stop:
            raise StopIteration
        item = item_at(self._get, index)
        self._index = index - index % self._step + self._step
        return item


def item_at(get: Callable[[Any], Any], index: Any) -> Any:
    """Return ``get(index)``."""
    try:
        return get(index)
    except StopIteration as error:  # would end the pass
        raise RuntimeError(f"item {index} of the source raised StopIteration") from error


class Mapped(Iterator[Any]):
    """Yields ``function(item)`` for each of the items."""

    def __init__(self, items: Iterator[Any], function: Callable[[Any], Any]) -> None:
        self._items = items
        self._function = function
        self._taken: list[Any] = []

    def __next__(self) -> Any:
        """Return the next result."""
        if not self._taken:
            self._taken.extend(itertools.islice(self._items, 1))
        if not self._taken:
            raise StopIteration
        item = self._function(self._taken[0])
        del self._taken[0]
        return item


class Chained(Iterator[Any]):
    """Yields the items of ``inner(each)`` for each of the outer items."""

    def __init__(self, outer: Iterator[Any], inner: Callable[[Any], Iterable[Any]]) -> None:
        self._inner = Mapped(outer, partial(_iterated, inner))
        self._items: Iterator[Any] = iter(())

    def __next__(self) -> Any:
        """Return the next item."""
        while True:
            for item in self._items:
                return item
            for items in self._inner:
                self._items = items
                break
            else:
                raise StopIteration


def _iterated(inner: Callable[[Any], Iterable[Any]], each: Any) -> Iterator[Any]:
    return iter(inner(each))


def too_short(items: int, needed: int) -> CheckpointError:
    """Return the error of a source that has fewer items than a state needs."""
    return CheckpointError(
        f"the source ended after {items} items, and the state was taken after it had yielded "
        f"{needed}; a source without a state_dict must yield the same items again"
    )


def rows_of_all(batches: Iterable[Any]) -> int | None:
    """Return how many rows batches have in all; None if one of them has no array."""
    try:
        return sum(each.num_rows if is_record_batch(each) else rows_of(each) for each in batches)
    except ConfigError:
        return None
