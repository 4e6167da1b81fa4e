"""Sources, and readers of one pass over them.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from pyecho._core import CheckpointError, ConfigError, EchoError
from pyecho.items.rows import first_rows, rows_of
from pyecho.source.seen import Seen
from pyecho.source.sniff import is_record_batch, tell_epoch

CHUNK_BYTES = 1 << 20  # of rows that are read at a time


class Source:
    """A source; each kind is a class of its own, which `pyecho.source.source_of` chooses.

    One thread at a time reads a pass, or asks for a state.
    """

    in_memory = False  # True if reading never waits, so that it needs no thread of its own
    # True for an iterator, which cannot be read a second time. Known for certain after `read`;
    # before, any object with __next__ counts as an iterator.
    one_shot = False
    batched = False  # True if `read` yields batches whose rows are the examples
    indexed = False  # True if `read` can start anywhere
    native = False  # True if it fills slots itself; `read` then returns a `NativePass`
    exact = False  # True if a pass has as many items as `length` tells, for certain
    fills_slots = False  # True if `fill_slots` may be called
    unsure: str | None = None  # why `length` cannot be trusted, and so is None

    def __init__(self, given: Any) -> None:
        self.object = given  # the source, as the user passed it
        self.seen = Seen()

    def read(self, start: int = 0) -> Iterator[Any]:
        """Begin one pass. Call this in the thread that will read the items.

        `start`: leave out this many items, at no cost; needs `indexed`. `KeyboardInterrupt` in the
        middle of ``next()`` costs no item, unless it ends a generator of the user's.
        """
        raise NotImplementedError

    def length(self) -> int | None:
        """Return the number of items in a pass, or None if it is unknown.

        Counts what the echo stage counts: examples in example echoing (with `unbatch`, too), items
        in batch echoing. Trusts ``len()``, and a ``collate_fn`` to keep every example unless it is
        `unsure`. With `unbatch` a list of batches is walked through on every call.
        """
        raise NotImplementedError

    def doubt(self, why: str) -> None:
        """Be `unsure` of the length."""
        self.unsure = why

    def read_from(self, row: int) -> tuple[Iterator[Any], int]:
        """Begin one pass at the item with this row; return it and the number of its first row.

        Needs `indexed`.
        """
        return self.read(row), row

    def holding(self, rows: Sequence[int]) -> tuple[Iterator[Any], list[int]] | None:
        """Return the items with these rows of a pass, and a list of the first row of each.

        The list has that of an item once it was read. None if items are read one after the other.
        """
        return None

    def rows_told(self) -> int | None:
        """Return how many rows the first batch must have if `length` is right; None: any number."""
        return None

    def example(self) -> Any:
        """Return an example, with zeros. Needs `native`."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """Call ``set_epoch(epoch)`` where it exists: on the source and on the parts that it reads.

        That is its ``sampler``, its ``batch_sampler``, the samplers within that, and its
        ``dataset``; an object found twice is told once.
        """
        tell_epoch(self.object, epoch)

    # ------------------------------------------------------------ workers

    def prepare(self) -> None:
        """Start what the source needs, in the consumer's thread, before it is read."""

    def begun(self) -> None:
        """Know that the epoch that `prepare` was called for has begun: it is not begun again."""
        self.seen.forget()

    def fill_slots(self, spec: Any, to_array: Callable[[Any], Any], together: int) -> None:
        """Have passes fill the slots of the stage that reads. Needs `fills_slots`.

        `spec`, `to_array`: of the stage. `together`: slots that are filled at a time, at most.
        """

    def close(self) -> None:
        """End what `prepare` has started. From any thread, and from finalizers."""

    def join(self, seconds: float) -> None:
        """Wait this long at most for the end of what was started."""

    # ------------------------------------------------------------ states of the source's own

    def order(self, following: int | None) -> dict[str, Any] | None:
        """Return what a state holds of the order of passes; None: the source alone decides it.

        It is ``{"base": int | None, "begins": [[epoch, [array, ...]], ...], "counted": bool}``, see
        `pyecho.source.dataloader`. `following`: the epoch that begins next, between two.
        """
        return None

    def set_order(self, order: dict[str, Any] | None) -> None:
        """Have passes be in the order of a state."""
        if order is not None:
            raise CheckpointError(
                "the state holds the order of a DataLoader over a map-style dataset, and the "
                f"source here ({type(self.object).__name__}) is none"
            )

    @property
    def holder(self) -> Any:
        """Object with a state of its own (`is_stateful`): the source, or this pass's iterator.

        None if neither has them; this `Source` itself while it keeps the loaded state of an
        iterator that has ended.
        """
        return None

    def open_pass(self) -> Iterator[Any] | None:
        """Return the pass of a `holder` whose end the holder does not know yet."""
        return None

    def state(self) -> dict[str, Any] | None:
        """Return the state of the `holder`, None without one. No thread may be reading.

        It is ``{"iterator": bool, "ended": bool, "state": ...}``: whether it is one of the pass's
        iterator, and whether this iterator has met its end. From `load` on, or from `read_on` to
        the first item, it is the state that was loaded.
        """
        return None

    def load(self, state: dict[str, Any] | None) -> None:
        """Have the source go on where a state was taken; the next `read` begins a new pass.

        The rest of the pass is lost, unless the source goes on by itself.
        """
        if state is not None:
            raise CheckpointError(
                f"the state holds one of the source, but this one ({type(self.object).__name__}) "
                "has no load_state_dict"
            )

    def read_on(self, state: dict[str, Any]) -> Iterator[Any]:
        """Load a state and go on with the pass in which it was taken.

        Nothing is left of a pass that had met its end, even if the source would begin another one.
        """
        self.load(state)
        return iter(())


# ------------------------------------------------------------ readers


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
