"""Holds a pass to the length that its source has told."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from pyecho._core import EchoError
from pyecho.items.rows import first_rows, rows_of
from pyecho.source.base import Source


class Limited(Iterator[Any]):
    """Yields as many items as a source has told, or rows if it is batched: the last batch is cut.

    Sets `exceeded` at the end if there is more, for which it looks unless the source is an
    iterator, whose next pass begins there. Raises `EchoError` if there is less. `start`: items of
    the pass that came before.
    """

    exceeded = False
    """True once something was left out."""

    def __init__(
        self, items: Iterator[Any], length: int, source: Source, *, start: int = 0
    ) -> None:
        self._items = items
        self._length = length
        self._source = source
        self._index = start
        self._taken: list[Any] = []

    def __next__(self) -> Any:
        """Return the next item."""
        left = self._length - self._index
        while left <= 0 and not (self.exceeded or self._source.one_shot) and self._take():
            self.exceeded = self._rows() > 0
            self._taken.clear()
        if left <= 0:
            raise StopIteration
        if not self._take():
            raise EchoError(
                f"the source ({type(self._source.object).__name__}) has ended after {self._index} "
                f"items, and its length was {self._length}; have len() tell how many there are, or "
                "pass steps_per_epoch="
            )
        item, rows = self._taken[0], self._rows()
        if rows > left:
            self.exceeded = True
            item, rows = first_rows(item, left), left
        self._index += rows
        del self._taken[0]
        return item

    def _take(self) -> bool:
        if not self._taken:
            self._taken.extend(itertools.islice(self._items, 1))
        return bool(self._taken)

    def _rows(self) -> int:
        return rows_of(self._taken[0]) if self._source.batched else 1
