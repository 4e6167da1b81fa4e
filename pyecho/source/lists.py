"""The lists of indices of a pass over a `DataLoader`: the ones to load, counted."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from pyecho.items.rows import rows_of


class Order:
    """Stands for the sampler of a `DataLoader`: yields the `lists` of the pass that begins."""

    lists: Lists | None = None

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        """Return the lists of the pass."""
        return iter(()) if self.lists is None else self.lists

    def __len__(self) -> int:
        """Return the length of the sampler."""
        return len(self._sampler)


class Lists(Iterator[Any]):
    """The lists of indices of a pass that are kept; the pass is drawn with the first of them.

    With `again` a list whose items were not loaded (Ctrl-C) is yielded once more after `failed()`.
    """

    def __init__(
        self,
        draw: Callable[[], Iterator[Any]],
        keep: Callable[[int, int], bool],
        drawn: Callable[[], None],
        *,
        by_row: bool,
        again: bool,
    ) -> None:
        self._draw = draw
        self._keep = keep
        self._drawn = drawn  # called at the end, once
        self._is_over = False
        self._by_row = by_row
        self._lists: Iterator[Any] | None = None
        self._again = again
        self._following: list[Any] = []
        self._loading: list[Any] = []
        self.sizes: deque[int] = deque()
        """Rows of the lists that were yielded, for `Loaded`."""
        self.row = 0
        """Rows (batches, if these are the items) before the next list."""

    def __next__(self) -> Any:
        """Return the next list that is kept."""
        if not self._following:
            self._following.append(self._read())
        if self._again:
            self._loading[:] = self._following
        return self._following.pop()

    def loaded(self) -> None:
        """Know that the items of the last list were loaded."""
        self._loading.clear()

    def failed(self) -> None:
        """Go back to the last list, if its items were not loaded."""
        self._following.extend(self._loading)
        self._loading.clear()

    def _read(self) -> Any:
        if self._lists is None:
            self._lists = self._draw()
        for each in self._lists:
            begin = self.row
            self.row += len(each) if self._by_row else 1
            if self._keep(begin, self.row):
                if self._by_row:
                    self.sizes.append(self.row - begin)
                return each
        if not self._is_over:
            self._drawn()
        self._is_over = True
        raise StopIteration

    def look(self) -> None:
        """Skip to the first list now, unless a worker has it already."""
        if self._lists is None:
            with suppress(StopIteration):
                self._following.append(self._read())


class Loaded(Iterator[Any]):
    """The batches of a pass; calls `uneven` if one has other rows than its list of indices."""

    def __init__(self, items: Iterator[Any], lists: Lists, uneven: Callable[[], None]) -> None:
        self._items = items
        self._lists = lists
        self._uneven = uneven
        self._taken: list[Any] = []

    def __next__(self) -> Any:
        """Return the next batch."""
        if not self._taken:
            try:
                self._taken.extend(itertools.islice(self._items, 1))
            except BaseException:
                self._lists.failed()
                raise
        if not self._taken:
            raise StopIteration
        self._lists.loaded()
        if (sizes := self._lists.sizes) and rows_of(self._taken[0]) != sizes.popleft():
            self._uneven()
        item = self._taken[0]
        del self._taken[0]
        return item


class SeededLists(Iterator[Any]):
    """The lists of a sampler; `call` calls each step with a seeded generator of pyecho's."""

    def __init__(self, sampler: Any, call: Callable[[Callable[[], Any]], Any]) -> None:
        self._sampler = sampler
        self._call = call
        self._items: Iterator[Any] | None = None

    def __next__(self) -> Any:
        """Return the next list."""
        return self._call(self._next)

    def _next(self) -> Any:
        if self._items is None:
            self._items = iter(self._sampler)
        return next(self._items)
