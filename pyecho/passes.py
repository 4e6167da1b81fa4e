"""The passes over a source that one beginning reads, and the first item of the first one."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

from pyecho._core import CheckpointError
from pyecho.config import Config
from pyecho.context import CallerContext
from pyecho.progress import filling
from pyecho.rows import rows_of
from pyecho.source import Source
from pyecho.threads import tidying

NOTHING = object()
"""In the place of an item: there is none."""


def passes_over(
    source: Source,
    config: Config,
    epoch: int,
    capacity: int,
    resumed: Resumption | None = None,  # go on there
) -> Iterator[Iterator[Any]]:
    """Yield an iterator for each pass that flows into the one before it, from number `epoch` on."""
    leaving, ident = tidying, threading.get_ident  # modules may be empty by then
    if source.one_shot:
        numbers: Iterator[int] = iter([epoch])
    elif config.steps_per_epoch is not None:
        numbers = itertools.count(epoch)
    else:
        numbers = iter(range(epoch, max(epoch + 1, config.epochs or 0)))
    for number in numbers if resumed is None else resumed.numbers(numbers):
        source.tell_epoch(number)
        items = source.read() if resumed is None else resumed.read(source, number)
        if items is None:
            continue
        if config.progress and number == epoch:
            items = filling(items, capacity, rows_of if source.batched else None)
        resumed = None
        try:
            yield items
        finally:
            leaving.add(ident())
            del items
            leaving.discard(ident())


def _beginning_with(items: Iterator[Any], passes: Iterator[Any]) -> Iterator[Any]:
    # Not itertools.chain(): that would drop `passes` first, but `passes_over` is to drop the items.
    yield items
    del items
    yield from passes


class Resumption:
    """Where reading goes on, and what is read again before that.

    Where the source has no state of its own that is known, it is read again and skipped, by index
    if it has indices.
    """

    def __init__(
        self,
        replay: Any,
        number: int | None,  # of the pass to go on with; None: no pass is left
        index: int,  # of the item there
        wanted: dict[int, list[int]],  # by pass: numbers of the items to read again, ascending
        source_state: Any = None,
    ) -> None:
        self.replay = replay
        self.number = number
        self.offset = 0
        """Rows of the first item that belong to the time before."""
        self.again: list[tuple[int, int, Any]] = []
        """What was read again: the pass, the number of the first row, the item."""
        self.sample: Any = NOTHING
        """An item that was skipped."""
        self._index = index
        self._wanted = wanted
        self._state = source_state

    def numbers(self, passes: Iterator[int]) -> Iterator[int]:
        """Yield which of the passes are to be read, whole or in part."""
        here = self.number
        yield from (number for number in sorted(self._wanted) if here is None or number < here)
        if here is not None:
            yield from (number for number in passes if number >= here)

    def read(self, source: Source, number: int) -> Iterator[Any] | None:
        """Read again what is wanted of a pass; return the rest of it, None if that is not due."""
        here = number == self.number
        if here and self._state is not None:
            if source.one_shot:  # it may be at its end then, and show no item any more
                self.sample = next(source.read(), NOTHING)
            return source.read_on(self._state)
        wanted = self._wanted.get(number, [])
        if not source.indexed:
            items = self._walk(source, number, wanted, self._index if here else wanted[-1] + 1)
            return items if here else None
        length = source.items()
        if here and length is not None and length < self._index:
            raise _too_short(length, self._index)
        place, end = 0, 0
        while place < len(wanted):
            end = wanted[place]
            item = next(source.read(end), NOTHING)
            if item is NOTHING:
                raise _too_short(end, end + 1)
            self.again.append((number, end, item))
            end += rows_of(item) if source.batched else 1
            while place < len(wanted) and wanted[place] < end:
                place += 1
        return source.read(self._index) if here else None

    def _walk(self, source: Source, number: int, wanted: list[int], index: int) -> Iterator[Any]:
        if source.one_shot and source.skipped:
            raise CheckpointError(
                "the source, an iterator, was skipped once, and that was cut short"
            )
        source.skipped = True
        items, begin, place = source.read(), 0, 0
        while begin < index:
            item = next(items, NOTHING)
            if item is NOTHING:
                raise _too_short(begin, index)
            self.sample = item
            end = begin + (rows_of(item) if source.batched else 1)
            if place < len(wanted) and wanted[place] < end:
                self.again.append((number, begin, item))
                while place < len(wanted) and wanted[place] < end:
                    place += 1
            if end > index:
                self.offset = index - begin if number == self.number else 0
                return itertools.chain([item], items)
            begin = end
        return items


def _too_short(items: int, needed: int) -> CheckpointError:
    return CheckpointError(
        f"the source ended after {items} items, and the state was taken after it had yielded "
        f"{needed}; a source without a state_dict must yield the same items again"
    )


class Opening:
    """The first item of some passes, which is read once, however often it is asked for."""

    def __init__(self, passes: Iterator[Iterator[Any]], resumed: Resumption | None = None) -> None:
        self.resumed = resumed
        self.passes = passes
        """All passes, but for the first item once it has been read."""
        self.first: Any = NOTHING
        """The first item; `NOTHING` if there is none, or if it has not been read."""
        self.error: BaseException | None = None
        self.seconds = 0.0
        self._is_read = False

    def read(self, context: CallerContext | None = None) -> None:
        """Read it, in this context. If the source raises, that is `error`."""
        if self._is_read:
            return
        began = time.perf_counter()
        try:
            self._is_read = True
            self.first, items = self._peek() if context is None else context.run(self._peek)
            self.passes = _beginning_with(items, self.passes)
        except BaseException as error:
            self.error = error
        self.seconds = time.perf_counter() - began

    def _peek(self) -> tuple[Any, Iterator[Any]]:
        items = next(self.passes, iter(()))
        return next(items, NOTHING), items
