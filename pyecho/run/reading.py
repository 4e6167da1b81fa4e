"""Reads the passes of an epoch: from their beginning, or from a position on.

One object serves a fresh start and a resume. Where the source has no state of its own, it is read
again and skipped, by index if it has indices: up to the items of the state, or up to what the plan
needs. Every method may be cut short by Ctrl-C at any point, and the next call goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from pyecho import _core
from pyecho._core import CheckpointError, ConfigError, EchoError
from pyecho.config import Config
from pyecho.items.rows import rows_of
from pyecho.run.context import finish_on_device
from pyecho.run.extent import check_steps, may_have, pass_follows
from pyecho.run.threads import leaving_source
from pyecho.run.trace import span
from pyecho.source import Source
from pyecho.source.reader import Limited, too_short
from pyecho.state.position import Snapshot


class Cursor:
    """Reads some items of a pass again, by index where the source has indices; then the rest."""

    def __init__(self, source: Source, number: int) -> None:
        self.number = number  # of the pass
        self.items: Any = None if source.indexed else source.read()  # that follow
        self.item: list[Any] = []  # the one that was read last, if any
        self.begin = self.end = 0  # of that: numbers of its first row, and after its last
        self._source = source
        self._read: list[Any] = []

    def skip(self, row: int) -> None:
        """Skip the items before this row; it may be within the last of these."""
        if self._source.indexed:
            length = self._source.length()
            if length is not None and length < row:
                raise too_short(length, row)
            self.items, self.end, self._read = self._source.read(row), row, []
        while self.end < row:
            self._next(row)

    def seek(self, row: int) -> None:
        """Read the item with this row."""
        self.skip(row)
        if self.end == row:
            self._next(row + 1)

    def _next(self, needed: int) -> None:
        if not self._read:
            self._read.extend(islice(self.items, 1))
            if not self._read:
                raise too_short(self.end, needed)
        end = self.end + (rows_of(self._read[0]) if self._source.batched else 1)
        self.item = self._read
        self.begin = self.end
        self.end = end
        self._read = []


class Reading(Iterator[Iterator[Any]]):
    """The passes that flow into each other, as an iterator of iterators of their items.

    `saved`: where to go on. `state`: of the source there, if it has one of its own.
    """

    _items: Any = None  # of the running pass
    _leaving = leaving_source  # an attribute, because a late finalizer finds modules empty

    def __init__(
        self, source: Source, config: Config, saved: Snapshot, state: dict[str, Any] | None
    ) -> None:
        self.saved = saved
        self.at = saved.at
        """The position; after `open` for passes of the source's length."""
        self.first: list[Any] = []
        """The first item, once it is read; it comes before what the passes yield."""
        self.again: list[tuple[Any, bool, list[int], list[int]]] = []
        """Items that were read again, as `refill` takes them."""
        self.skipped_rows = saved.held_row
        """Rows of the first item that belong to the time before."""
        self.told: int | None = None
        """Items of a pass, as the source tells once it knows the epoch."""
        self.length: int | None = None  # likewise, if that is right
        self.error: BaseException | None = None  # of the source, instead of a first item
        self.seconds = 0.0  # that this took
        self.excess: list[int] = []
        """Passes that had more items than told, which were left out."""
        self._source = source
        self._config = config
        self._source_state = state
        self._is_open = False
        self._is_located = False
        self._told: int | None = None  # epoch of which the source was told last
        self._number: int | None = saved.at.epoch  # of the pass to go on in; None: all are read
        self._index = 0  # the item to go on with there
        self._following = saved.at.epoch + 1  # the pass after that
        self._wanted: list[tuple[int, int, int]] = []  # pass, row in it, which one of the plan
        self._found = 0  # of these
        self._cursor: Cursor | None = None
        self._rest: Any = None  # of the first pass
        self._looked: list[Any] = []  # an item that was read only to see how items look
        self._limited: Limited | None = None  # of the running pass

    # ------------------------------------------------------------ the first item

    def open(self) -> None:
        """Read what is wanted again, and the first item."""
        if self._is_open or self.error is not None:
            return
        began = time.perf_counter()
        try:
            with span("source"):
                self._locate()
                self._read_again()
                self._read_first()
            self._is_open = True
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.error = error  # without a call, in which Ctrl-C could lose it
        finally:
            self.seconds += time.perf_counter() - began

    def fail(self, error: BaseException) -> None:
        """Keep what a thread has met instead of a first item."""
        self.error = error

    def _locate(self) -> None:
        """Find out what to read."""
        if self._is_located:
            return
        self._tell(self.saved.at.epoch)
        self.told = self.length = self._source.length()
        if not self.saved.is_fresh:
            self._locate_saved()
        self._is_located = True

    def _locate_saved(self) -> None:
        source, saved, length = self._source, self.saved, self.length
        self.at = at = saved.at.of_length(length, self._config)
        if at.items is None and at.passes is not None and length is not None:
            self._doubt("had no length that was right when the state was taken")
            length = None
        if at.items is not None and length not in (None, at.items):
            raise CheckpointError(
                f"the source has {length} items, and had {at.items} when the state was taken"
            )
        if at.uses is not None and not may_have(self._config, at.items or 0, at.uses):
            raise CheckpointError(
                f"the state tells of {at.uses} uses of {at.items} items in a pass, which cannot "
                "be: the source has another length, or the state is damaged"
            )
        passes = at.passes or []
        ended = sum(count for count, _ in passes) + (0 if at.segment is None else at.segment[0])
        number, index = ended, at.open_items
        if saved.unspent is None:
            capacity = self._config.capacity_for(at.items)
            batch_size = self._config.batch_size or 1
            config = replace(self._config, batch_size=batch_size, shuffle_buffer=capacity)
            (numbers, _), number, index, _ = _core.SlotPlan(config).resume(at, None)
            located = enumerate(at.located(numbers.tolist()))
            self._wanted = [(at.epoch + of_pass, row, which) for which, (of_pass, row) in located]
        over = at.ended and number == ended
        if over and source.one_shot:  # read to its end, so that the next epoch finds nothing
            over, number, index = False, number - 1, passes[-1][1]
        self._number = None if over else at.epoch + number
        self._following = at.epoch + number + (not over)
        self._index = index

    def _read_again(self) -> None:
        while self._found < len(self._wanted):
            of_pass, row, which = self._wanted[self._found]
            cursor = self._cursor_in(of_pass)
            if row >= cursor.end:
                cursor.seek(row)
            [item] = cursor.item
            if not self.again or self.again[-1][0] is not item:
                self.again.append((item, self._source.batched, [], []))
            *_, rows, whiches = self.again[-1]
            if which not in whiches[-1:]:
                rows[len(whiches) :] = [row - cursor.begin]
                whiches += [which]
            self._found += 1
        for item, *_ in self.again:  # which the consumer's thread puts into slots
            finish_on_device(item)

    def _cursor_in(self, number: int) -> Cursor:
        if self._cursor is None or self._cursor.number != number:
            self._tell(number)
            self._cursor = Cursor(self._source, number)
        return self._cursor

    def _read_first(self) -> None:
        """Open the pass to go on in, and read its first item."""
        number, source, saved = self._number, self._source, self.saved
        if number is None:
            source.load(self._source_state)
            return
        if self._rest is None:
            self._rest = self._open_rest(number)
        if not (self.first or source.native):
            self.first.extend(islice(self._rest, 1))
        if self.first and saved.is_fresh:
            self._check_rows(self.first[0])

    def _check_rows(self, first: Any) -> None:
        """Do without a length if the first batch of a pass has other rows than told."""
        told = self._source.rows_told()
        if told is None or self.length is None:
            return
        rows, is_cut = rows_of(first), self._limited is not None and self._limited.exceeded
        if rows != told or is_cut:
            self._doubt(
                f"begins with a batch of {'more than ' * is_cut}{rows} rows and tells {told}, as "
                "with a collate_fn that makes more or fewer examples of a batch"
            )

    def _doubt(self, why: str) -> None:
        self._source.unsure = why
        self.length = None

    def _open_rest(self, number: int) -> Any:
        source, saved = self._source, self.saved
        if self._source_state is not None:
            if source.one_shot and not self._looked:  # it may have none once its state is loaded
                self._looked.extend(islice(source.read(), 1))
            held = sum(rows_of(each) if source.batched else 1 for each in saved.held)
            items = source.read_on(self._source_state)
            return self._limit(items, self._index + held - self.skipped_rows)
        if saved.is_fresh:
            items = self._open_pass(number)
            if self._config.progress and not (source.native or source.fills_slots):
                from pyecho.run.progress import Filling

                capacity = self._config.capacity_for(self.length)
                items = Filling(items, capacity, rows_of if source.batched else None)
            return items
        cursor = self._cursor_in(number)
        cursor.skip(self._index)
        if cursor.end > self._index:  # its item has rows of both sides
            self.skipped_rows = self._index - cursor.begin
            rest = self._limit(chain(cursor.item, cursor.items), cursor.begin)
            self.first[:] = islice(rest, 1)
            return rest
        return self._limit(cursor.items, cursor.end)

    def forget(self) -> None:
        """Drop the first item and the items of the state, which the stage has by now."""
        self.first, self.again, self._looked = [], [], []
        self.saved, self._cursor = Snapshot(at=self.at), None

    # ------------------------------------------------------------ all items

    def __next__(self) -> Any:
        """Return the items of the next pass."""
        self._leave_pass()
        number, config, source = self._number, self._config, self._source
        if number is None:
            if source.one_shot and config.bounded and config.steps_per_epoch:
                raise EchoError(
                    f"the source ({type(source.object).__name__}) is an iterator and has ended; "
                    f"with steps_per_epoch= and {config.bounded_by} pass one that can be read again"
                )
            raise StopIteration
        rest = self._open_pass(number) if self._rest is None else self._rest
        following = number + 1 if pass_follows(config, source, number) else None
        self._items = rest
        self._rest = None
        self._number = following
        return rest

    def _open_pass(self, number: int) -> Any:
        source, config = self._source, self._config
        self._tell(number)
        length = source.length()
        if config.bounded and config.steps_per_epoch is not None:
            check_steps(config, source, length)
        elif config.bounded and length != self.length:
            raise ConfigError(
                f"epochs= with {config.bounded_by} needs passes of one length, and the first has "
                f"{self.length} items and a later one {length}; leave out epochs=, or pass "
                "steps_per_epoch="
            )
        return self._limit(source.read(), 0)

    def _tell(self, epoch: int) -> None:
        """Tell the source the number of an epoch, once."""
        if epoch != self._told:
            self._source.set_epoch(epoch)
            self._told = epoch

    def _limit(self, items: Any, begin: int) -> Any:
        """Have a pass be as long as told, where an epoch's extent depends on it."""
        source, config = self._source, self._config
        unlimited = not config.bounded or config.steps_per_epoch is not None
        unlimited = unlimited or source.native or source.exact
        if unlimited or self.length is None:  # then refused once the extent is settled
            return items
        self._limited = Limited(items, self.length, source, start=begin)
        return self._limited

    def __del__(self) -> None:
        """Leave the source."""
        self._leave_pass()

    def _leave_pass(self) -> None:
        if self._items is None:
            return
        if self._limited is not None and self._limited.exceeded:
            self.excess.append(1)
        with self._leaving:
            self._items = self._limited = None

    # ------------------------------------------------------------ an item like the ones to come

    def example(self) -> list[Any]:
        """Return an item like the source's, to make the stages for; no item if there is none."""
        source, saved = self._source, self.saved
        if source.native:
            return [source.example()]
        known = [*self.first, *self._looked, *(each[0] for each in self.again)]
        if self._cursor is not None:
            known += self._cursor.item
        if saved.unspent is not None and saved.unspent.leaves is None:
            known += saved.unspent.columns[0]
        if known or saved.is_fresh:
            return known[:1]
        flows = self._config.steps_per_epoch is not None
        if saved.is_empty and not flows and self.at.epoch + 1 >= (self._config.epochs or 0):
            return []
        state = source.state()
        if state is not None:  # that of its end may mean the end until the next epoch
            source.set_epoch(self._following)
        looked = list(islice(source.read(), 1))
        source.load(state)  # that was only a look
        if not looked and not saved.is_empty:
            raise CheckpointError(
                f"the source ({type(source.object).__name__}) has ended, so nothing shows how the "
                "items of the state look; let it be one that can be iterated again"
            )
        return looked
