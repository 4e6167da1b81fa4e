"""Reads the passes of an epoch: from their beginning, or from a position on.

One object serves a fresh start and a resume. Where the source has no state of its own, it is read
again and skipped, by index if it has indices: up to the items of the state, or up to what the plan
needs. Ctrl-C may cut short ``next()`` of a `Reading` at any point, and the next call goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from pyecho._core import CheckpointError, ConfigError, EchoError
from pyecho.config import Config
from pyecho.items.rows import rows_of
from pyecho.run.context import finish_on_device
from pyecho.run.extent import check_steps, pass_follows
from pyecho.run.filling import shown_filling
from pyecho.run.reread import Cursors, cannot_go_back
from pyecho.run.seek import located
from pyecho.run.threads import leaving_source
from pyecho.run.trace import span
from pyecho.source import Source
from pyecho.source.limited import Limited
from pyecho.state.items import Part
from pyecho.state.position import Snapshot


class Reading(Iterator[Iterator[Any]]):
    """The passes that flow into each other, as an iterator of iterators of their items.

    `saved`: where to go on. `state`: of the source there, if it has one of its own.
    """

    _items: Any = None  # of the running pass

    def __init__(
        self, source: Source, config: Config, saved: Snapshot, state: dict[str, Any] | None
    ) -> None:
        self.saved = saved
        self.at = saved.at
        """The position; after `open` for passes of the source's length."""
        self.first: list[Any] = []
        """The first item, once it is read; it comes before what the passes yield."""
        self.again: list[Part] = []
        """Items that were read again."""
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
        self._number: int | None = saved.at.epoch  # of the pass to go on in; None: all are read
        self._index = 0  # the item to go on with there
        self._following = saved.at.epoch + 1  # the pass after that
        self._cursors = Cursors(source)
        self._rest: Any = None  # of the first pass
        self._looked: list[Any] = []  # an item that was read only to see how items look
        self._limited: Limited | None = None  # of the running pass

    # ------------------------------------------------------------ the first item

    def open(self) -> None:
        """Read what is wanted again, and the first item; know an item like the ones to come.

        A second call, over a source that cannot go back, goes on with what the first has opened.
        """
        began = time.perf_counter()
        try:
            with span("source"):
                if not self.is_open:
                    self._open()
                self._read_first()
                self._look()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.error = error
            if not self._source.one_shot:  # it is opened again
                self._rest = None
        finally:
            self.seconds = time.perf_counter() - began

    @property
    def is_open(self) -> bool:
        """True if the source was read, or is about to be."""
        return self._rest is not None or self._cursors.last is not None

    def fail(self, error: BaseException) -> None:
        """Keep what a thread has met instead of a first item."""
        self.error = error

    def check(self) -> None:
        """Raise the error of the source, if there is one."""
        error, self.error = self.error, None
        try:
            if isinstance(error, StopIteration):
                raise RuntimeError("the source raised StopIteration") from error
            if error is not None:
                raise error
        finally:
            del error  # its traceback has this frame

    def _open(self) -> None:
        """Read what is wanted again, and open the pass to go on in."""
        self._source.set_epoch(self.saved.at.epoch)  # which may decide the length
        self.told = self.length = self._source.length()
        if not self.saved.is_fresh:
            place = located(self._source, self._config, self.saved, self.length)
            self.at, self._number, self._index, self._following, wanted = place
            if self._source.unsure is not None:
                self.length = None
            self.again = self._cursors.read(wanted)
            for part in self.again:  # which the consumer's thread puts into slots
                finish_on_device(part.nest)
        if self._number is None:
            self._source.load(self._source_state)
        else:
            self._rest = self._open_rest(self._number)

    def _read_first(self) -> None:
        """Read the first item of that pass."""
        if self._number is None:
            return
        if self._rest is None:
            raise cannot_go_back(self._source)
        if not (self.first or self._source.native):
            self.first.extend(islice(self._rest, 1))
            if not self.first:  # then `example` begins another pass, perhaps of the same iterator
                self._rest = iter(())
        if self.first and self.saved.is_fresh:
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
        self._source.doubt(why)
        self.length = None

    def _open_rest(self, number: int) -> Any:
        source, saved = self._source, self.saved
        if self._source_state is not None:
            begun = number - saved.at.end_is_due
            if source.one_shot:  # it may have none once its state is loaded
                self._looked = list(islice(source.open(begun).items, 1))
            held = sum(rows_of(each) if source.batched else 1 for each in saved.held)
            items = source.open(begun, state=self._source_state).items
            if saved.at.end_is_due:
                for _ in items:
                    self.excess.append(1)
                    break
                return self._open_pass(number)
            return self._limit(items, self._index + held - self.skipped_rows)
        if saved.is_fresh:
            return shown_filling(self._open_pass(number), source, self._config, self.length)
        cursor = self._cursors.in_pass(number)
        cursor.skip(self._index)
        if cursor.end > self._index:  # its item has rows of both sides
            self.skipped_rows = self._index - cursor.begin
            rest = self._limit(chain(cursor.item, cursor.items), cursor.begin)
            self.first = list(islice(rest, 1))
            return rest
        return self._limit(cursor.items, cursor.end)

    def _look(self) -> None:
        """Read an item only to see how items look, where nothing else shows it."""
        source, saved = self._source, self.saved
        if source.native or saved.is_fresh or self.example():
            return
        flows = self._config.steps_per_epoch is not None
        if saved.is_empty and not flows and self.at.epoch + 1 >= (self._config.epochs or 0):
            return
        state = source.state()
        # A state of its end may mean the end until the next epoch; else a pass that has begun.
        self._looked = list(islice(source.open(self._following - (state is None)).items, 1))
        source.load(state)  # that was only a look
        if not self._looked and not saved.is_empty:
            raise CheckpointError(
                f"the source ({type(source.object).__name__}) has ended, so nothing shows how the "
                "items of the state look; let it be one that can be iterated again"
            )

    def example(self) -> list[Any]:
        """Return an item like the source's, to make the stages for; no item if there is none."""
        source, unspent = self._source, self.saved.unspent
        if source.native:
            return [source.example()]
        known = [*self.first, *self._looked, *(part.nest for part in self.again)]
        if self._cursors.last is not None:
            known += self._cursors.last.item
        if unspent is not None and unspent.leaves is None:
            known += unspent.columns[0]
        return known[:1]

    def forget(self) -> None:
        """Drop the first item and the items of the state, which the stage has by now."""
        self.first, self.again, self._looked = [], [], []
        self.saved, self._cursors.last = Snapshot(at=self.at), None
        self._source.begun()

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
        items, length = source.open(number).items, source.length()
        if config.bounded and config.steps_per_epoch is not None:
            check_steps(config, source, length)
        elif config.bounded and length != self.length:
            raise ConfigError(
                f"epochs= with {config.bounded_by} needs passes of one length, and the first has "
                f"{self.length} items and a later one {length}; leave out epochs=, or pass "
                "steps_per_epoch="
            )
        return self._limit(items, 0)

    def _limit(self, items: Any, begin: int) -> Any:
        """Have a pass be as long as told, where an epoch's extent depends on it."""
        source, config = self._source, self._config
        unlimited = not config.bounded or config.steps_per_epoch is not None
        unlimited = unlimited or source.native or source.exact
        if unlimited or self.length is None:  # then refused once the extent is settled
            return items
        self._limited = Limited(items, self.length, source, start=begin)
        return self._limited

    def leave(self) -> None:
        """Leave the source."""
        self._leave_pass()
        self._rest = self._cursors.last = None

    def _leave_pass(self) -> None:
        if self._items is None:
            return
        if self._limited is not None and self._limited.exceeded:
            self.excess.append(1)
        with leaving_source:
            self._items = self._limited = None
