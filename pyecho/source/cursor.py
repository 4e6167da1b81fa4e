"""Reads items again that a state refers to, which Ctrl-C may not cut short and continue."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from pyecho._core import CheckpointError
from pyecho.items.rows import rows_of
from pyecho.source.reader import Source, too_short


class Cursor:
    """Reads some items of a pass again, by index where the source has indices; then the rest.

    `rows`: to `seek`, in their order.
    """

    def __init__(self, source: Source, number: int, rows: Sequence[int] = ()) -> None:
        self.number = number  # of the pass
        held = source.holding(rows) if rows else None
        self.items: Any = None  # that follow
        self._begins: list[int] = []  # of these, if they do not follow one after the other
        self._skips = held is None
        if held is not None:
            self.items, self._begins = held
        elif not source.indexed:
            self.items = source.read()
        self.item: list[Any] = []  # the one that was read last, if any
        self.begin = self.end = 0  # of that: numbers of its first row, and after its last
        self._source = source

    def skip(self, row: int) -> None:
        """Skip the items before this row; it may be within the last of these."""
        if self._source.indexed:
            length = self._source.length()
            if length is not None and length < row:
                raise too_short(length, row)
            self.items, self.end = self._source.read_from(row)
            self._begins = []
        while self.end < row:
            self._next(row)

    def seek(self, row: int) -> None:
        """Read the item with this row."""
        if self._skips:
            self.skip(row)
        while self.end <= row:
            self._next(row + 1)

    def _next(self, needed: int) -> None:
        self.item = list(islice(self.items, 1))
        if not self.item:
            raise too_short(self.end, needed)
        self.begin = self._begins.pop(0) if self._begins else self.end
        self.end = self.begin + (rows_of(self.item[0]) if self._source.batched else 1)


def cannot_go_back(source: Source) -> CheckpointError:
    """Return the error of a state for an iterator that has been read from."""
    return CheckpointError(
        f"the source ({type(source.object).__name__}) is an iterator that has been read from, and "
        "cannot go back; load the state into a new loader over a new iterator"
    )
