"""Reads items of a pass again, for a state that has none."""

from __future__ import annotations

from itertools import islice
from typing import Any

from pyecho.items.rows import rows_of
from pyecho.source import Source
from pyecho.source.reader import too_short

NOTHING = object()
"""Stands for an item where there is none."""


class Cursor:
    """Reads some items of a pass, by index where the source has indices, and then the rest."""

    def __init__(self, source: Source, number: int) -> None:
        self.number = number
        self.item: Any = NOTHING
        self.begin = self.end = 0  # of the item: numbers of its first row, and after its last
        self._source = source
        self._items: Any = None if source.indexed else source.read()
        self._read: list[Any] = []

    def seek(self, row: int) -> None:
        """Read the item with this row."""
        if self._source.indexed:
            self._items, self.end, self._read = self._source.read(row), row, []
        while self.end <= row:
            self._next(row + 1)

    def rest(self, row: int) -> tuple[Any, int, int]:
        """Return the items from there on, the number of their first row, and an offset.

        If the offset is not 0, the cursor's item comes before them, without so many rows.
        """
        if self._source.indexed:
            length = self._source.length()
            if length is not None and length < row:
                raise too_short(length, row)
            return self._source.read(row), row, 0
        while self.end < row:
            self._next(row)
        return self._items, self.end, 0 if self.end == row else row - self.begin

    def _next(self, needed: int) -> None:
        if not self._read:
            self._read.extend(islice(self._items, 1))
            if not self._read:
                raise too_short(self.end, needed)
        item = self._read[0]
        end = self.end + (rows_of(item) if self._source.batched else 1)
        self.item = item
        self.begin = self.end
        self.end = end
        self._read = []
