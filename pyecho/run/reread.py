"""Reads the items again that a state refers to; after Ctrl-C it begins anew."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from pyecho._core import CheckpointError
from pyecho.items.rows import rows_of
from pyecho.source.base import Pass, Source
from pyecho.source.reader import too_short
from pyecho.state.items import Part


class Wanted(NamedTuple):
    """An item to read again."""

    number: int  # of its pass
    row: int
    which: int  # of the items that the plan holds


class Cursors:
    """Reads items again, in one pass after the other."""

    def __init__(self, source: Source) -> None:
        self.last: Cursor | None = None
        self._source = source

    def read(self, wanted: list[Wanted]) -> list[Part]:
        """Return these items."""
        rows: dict[int, list[int]] = {}
        for item in wanted:
            rows.setdefault(item.number, []).append(item.row)
        parts: list[Part] = []
        for number, row, which in wanted:
            cursor = self.in_pass(number, rows[number])
            if row >= cursor.end:
                cursor.seek(row)
            [nest] = cursor.item
            if not parts or parts[-1].nest is not nest:
                parts.append(Part(nest, self._source.batched, [], []))
            parts[-1].rows.append(row - cursor.begin)
            parts[-1].which.append(which)
        return parts

    def in_pass(self, number: int, rows: Sequence[int] = ()) -> Cursor:
        """Return the cursor in a pass: the last one, if it is there, or a new one for `rows`."""
        if self.last is None or self.last.number != number:
            self.last = Cursor(self._source, number, rows)
        return self.last


class Cursor:
    """Reads some items of a pass again, by index where the source has indices; then the rest.

    `rows`: to `seek`, in their order.
    """

    def __init__(self, source: Source, number: int, rows: Sequence[int] = ()) -> None:
        self.number = number  # of the pass
        held = source.holding(number, rows) if rows else None
        self._skips = held is None
        if held is None and not source.indexed:
            held = source.open(number)
        self.items, self._begins = held or Pass(iter(()))  # that follow, and where each begins
        self.item: list[Any] = []  # the one that was read last, if any
        self.begin = self.end = 0  # of that: numbers of its first row, and after its last
        self._source = source

    def skip(self, row: int) -> None:
        """Skip the items before this row; it may be within the last of these."""
        if self._source.indexed:
            length = self._source.length()
            if length is not None and length < row:
                raise too_short(length, row)
            self.items, self._begins = self._source.open(self.number, row)
            self.end = self._begins[0] if self._begins else row
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
