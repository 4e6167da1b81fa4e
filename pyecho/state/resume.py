"""Where a loader goes on in its source, and what it reads there once more."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyecho import _core
from pyecho._core import CheckpointError
from pyecho.config import Config
from pyecho.items.rows import rows_of
from pyecho.source.source import Source, too_short
from pyecho.state.check import Flow, SavedState

NOTHING = object()
"""In the place of an item: there is none."""


class Resumption:
    """The part of a source that a resumed flow of passes reads.

    Where the source has no state of its own, it is read again and skipped, by index if it has
    indices: up to the items of the state, or up to what its plan needs.
    """

    def __init__(self, saved: SavedState, flow: Flow, config: Config, source: Source) -> None:
        self.flow = flow
        self.again: list[tuple[Any, Any, Any]] = []
        """Items that were read again: rows that are wanted, and which ones of the plan they are."""
        self.offset = flow.held_row
        """Rows of the first item that belong to the time before."""
        self._source_state = saved.source
        self._example: Any = NOTHING
        self._wanted: dict[int, list[tuple[int, int]]] = {}  # by pass: places, and which ones
        number, index = sum(count for count, _ in flow.passes), flow.open_items
        if not flow.payload:
            plan = _core.BatchPlan(replace(config, batch_size=config.batch_size or 1))
            (numbers, _), number, index, _ = plan.resume(flow)
            wanted = flow.located(numbers.tolist())
            for which, (of_pass, place) in enumerate(wanted):
                self._wanted.setdefault(flow.epoch + of_pass, []).append((place, which))
        over = flow.ended and number == sum(count for count, _ in flow.passes)
        if over and source.one_shot:  # read it to its end: the next epoch is to find nothing
            over, number, index = False, number - 1, flow.passes[-1][1]
        self._number = None if over else flow.epoch + number
        self._index = index
        self._next = flow.epoch + number + (not over)  # the pass after those
        last = config.steps_per_epoch is None and flow.epoch + 1 >= (config.epochs or 0)
        self._is_last = last  # no other pass flows into the one of the state

    def check_length(self, source: Source) -> None:
        """Raise `CheckpointError` if the first pass has another length than it had."""
        had = self.flow.items
        if had is None:
            return
        source.tell_epoch(self.flow.epoch)
        items = source.items()
        if items is not None and items != had:
            raise CheckpointError(
                f"the source has {items} items, and had {had} when the state was taken"
            )

    def numbers(self, passes: Iterator[int]) -> Iterator[int]:
        """Yield which of the passes are to be read, whole or in part."""
        here = self._number
        yield from (number for number in sorted(self._wanted) if here is None or number < here)
        if here is not None:
            yield from (number for number in passes if number >= here)

    def read(self, source: Source, number: int) -> Iterator[Any] | None:
        """Read again what is wanted of a pass; return the rest of it, None if that is not due."""
        if number == self._number and self._source_state is not None:
            if source.one_shot:  # it may be at its end then, and show no item any more
                self._example = next(source.read(), NOTHING)
            held = sum(rows_of(each) if source.batched else 1 for each in self.flow.held)
            return source.read_on(self._source_state, self._index + held - self.offset)
        if source.one_shot and source.skipped:
            raise CheckpointError(
                "the source, an iterator, was skipped once, and that was cut short"
            )
        source.skipped = True
        cursor = _Cursor(source)
        for place, which in self._wanted.get(number, []):
            if place >= cursor.end:
                cursor.seek(place)
                self.again.append((cursor.item, [], []))
            self.again[-1][1].append(place - cursor.begin)
            self.again[-1][2].append(which)
        items = None
        if number == self._number:
            items, self.offset = cursor.rest(self._index)
        self._example = cursor.item
        return items

    def end(self, source: Source) -> None:
        """Have a source that is not read any more stand at its end."""
        if self._number is None:
            source.load(self._source_state)

    def example(self, source: Source, first: Any) -> Any:
        """Return an item like those of the source, to make the stages for.

        `first`: the next one that it yields. `NOTHING`: nothing but the end of an epoch is left.
        """
        flow = self.flow
        items = flow.columns[0] if flow.leaves is None and flow.payload else []
        for item in (first, self._example, *(each[0] for each in self.again), *items):
            if item is not NOTHING:
                return item
        left = flow.count > 0 or flow.held or any(made for *_, made in flow.links.values())
        if self._is_last and not left:
            return NOTHING
        state = source.state()
        if state is not None:  # that of its end may mean the end until the next epoch
            source.tell_epoch(self._next)
        item = next(source.read(), NOTHING)
        source.load(state)  # that was only a look
        if item is NOTHING and left:
            raise CheckpointError(
                f"the source ({type(source.object).__name__}) has ended, so nothing shows how the "
                "items of the state look; let it be one that can be iterated again"
            )
        return item


class _Cursor:
    """Reads some items of a pass, by index where the source has indices, and then the rest."""

    def __init__(self, source: Source) -> None:
        self.item: Any = NOTHING
        self.begin = self.end = 0  # of the item: numbers of its first row, and behind its last
        self._source = source
        self._items: Iterator[Any] = iter(()) if source.indexed else source.read()

    def seek(self, place: int) -> None:
        if self._source.indexed:
            self._items, self.end = self._source.read(place), place
        while self.end <= place:
            self._next(place + 1)

    def rest(self, place: int) -> tuple[Iterator[Any], int]:
        """Return the items from there on, and how many rows of the first one lie before."""
        if self._source.indexed:
            length = self._source.items()
            if length is not None and max(length, self._source.pass_items or 0) < place:
                raise too_short(length, place)
            return self._source.read(place), 0
        while self.end < place:
            self._next(place)
        if self.end == place:
            return self._items, 0
        return itertools.chain([self.item], self._items), place - self.begin

    def _next(self, needed: int) -> None:
        item = next(self._items, NOTHING)
        if item is NOTHING:
            raise too_short(self.end, needed)
        self.item, self.begin = item, self.end
        self.end += rows_of(item) if self._source.batched else 1
