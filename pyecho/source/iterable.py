"""Iterables and map-style datasets: lists, iterators, loaders, and whatever has items by index."""

from __future__ import annotations

import itertools
import operator
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from types import FunctionType
from typing import Any

from pyecho._core import CheckpointError
from pyecho.source.arrays import in_memory
from pyecho.source.base import Pass, Source
from pyecho.source.reader import Indexed, Mapped, rows_of_all
from pyecho.source.seen import Seen, digest_of_item
from pyecho.source.sniff import examples_of, is_record_batch, length_of, state_methods


class Iterable(Source):
    """A source that is iterated, or that only has items by index: a map-style dataset.

    An iterated one may have a state of its own, or its iterators may. The position of a map-style
    dataset is the index.
    """

    def __init__(self, given: Any, *, unbatch: bool) -> None:
        super().__init__(given)
        self.in_memory = in_memory(given)
        self.one_shot = isinstance(given, Iterator)
        iterate = getattr(type(given), "__iter__", None)
        self._is_map_style = iterate in (None, Sequence.__iter__) and length_of(given) is not None
        starts_anywhere = self.in_memory or self._is_map_style or isinstance(given, Sequence)
        self._by_index = starts_anywhere and not unbatch  # a row may be in any batch
        self.batched = unbatch
        self._is_stateful = not self._is_map_style and state_methods(given) is not None
        self._pass: weakref.ref[_StatefulPass] | None = None  # if it has a state
        self._ended = False  # the pass that was read last, or whose state was loaded
        self._loaded: dict[str, Any] | None = None

    def split_lists(self) -> None:
        """Yield examples, also where that leaves no state of the source's own."""
        super().split_lists()
        self._is_stateful = False

    def _open(self, at: int) -> Pass:
        items = self._items(at)
        own = self._by_index or isinstance(items, _StatefulPass)
        items = Mapped(items, batch_of) if self.batched else items
        return Pass(items if own else self.seen.watched(items, digest_of_item))

    def _items(self, start: int) -> Iterator[Any]:
        self._ended, self._loaded = False, None
        if self._is_map_style or (start > 0 and not self.in_memory):
            return Indexed(partial(operator.getitem, self.object), start, len(self.object))
        items: Iterator[Any] = iter(self.object)
        self.one_shot = items is self.object
        if start > 0:
            in_memory: Any = items
            in_memory.__setstate__(start)  # of lists, tuples and ranges, at no cost
            return items
        if self._splits or not (self._is_stateful or state_methods(items)):
            return _next_of(items)
        reading = _StatefulPass(self, items)
        self._pass = weakref.ref(reading)
        return reading

    def _length(self) -> int | None:
        if not self.batched:
            return length_of(self.object)
        return rows_of_all(self.object) if self.in_memory else examples_of(self.object).in_all

    def rows_told(self) -> int | None:
        """Return how many rows the first batch of a `DataLoader` must have."""
        return examples_of(self.object).in_first if self.batched and not self.in_memory else None

    # ------------------------------------------------------------ states

    @property
    def holder(self) -> Any:
        """Object with a state of its own."""
        if self._is_stateful:
            return self.object
        reading = None if self._pass is None else self._pass()
        if reading is not None:
            return reading.items
        return None if self._loaded is None else self

    def open_pass(self) -> Iterator[Any] | None:
        """Return the pass of a `holder` whose end the holder does not know yet."""
        return None if self._pass is None or self._ended else self._pass()

    def state(self) -> dict[str, Any] | None:
        """Return the state of the holder."""
        if self._loaded is not None:  # some can tell theirs only once they have been read
            return self._loaded
        holder = self.holder
        if holder is None:
            return None
        methods: Any = state_methods(holder)
        is_iterator = holder is not self.object
        return {"iterator": is_iterator, "ended": self._ended, "state": methods.take()}

    def load(self, state: dict[str, Any] | None) -> None:
        """Have the source itself go on where the state was taken."""
        if state is None:
            return
        if not state["iterator"]:
            if not self._is_stateful:
                super().load(state)
            methods: Any = state_methods(self.object)
            methods.load(state["state"])
        self._pass, self.epoch = None, -1
        self._ended, self._loaded = state["ended"], state

    def _go_on(self, state: dict[str, Any]) -> Iterator[Any]:
        self.load(state)
        if state["ended"]:
            return iter(())
        items: Iterator[Any] = self._open(0).items
        if state["iterator"]:
            methods = None if self._is_stateful else state_methods(self.holder)
            if methods is None:
                raise CheckpointError(
                    f"the state holds one of the source's iterator, but iterators of this source "
                    f"({type(self.object).__name__}) have no load_state_dict"
                )
            methods.load(state["state"])
        self._loaded = state
        return items

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the pass, which belongs to this one only."""
        return {**self.__dict__, "_pass": None, "seen": Seen()}


class _StatefulPass(Iterator[Any]):
    """A pass over a source with a state of its own, which tells the source how far it is."""

    def __init__(self, source: Iterable, items: Iterator[Any]) -> None:
        self.items = items
        self._next = _next_of(items)
        self._source = source

    def __next__(self) -> Any:
        for item in self._next:
            self._source._loaded = None
            return item
        self._source._ended, self._source._loaded = True, None
        raise StopIteration


def batch_of(item: Any) -> Any:
    """Return a batch that can be split: of a record batch or table of pyarrow its columns."""
    if not is_record_batch(item):
        return item
    from pyecho.source.arrow import columns_of_batch

    return columns_of_batch(item)


def _next_of(items: Iterator[Any]) -> Iterator[Any]:
    """Return what is iterated without another ``iter(items)``, which might rewind them or fail."""
    method = getattr(type(items), "__iter__", None)
    if method is None or isinstance(method, FunctionType):
        return map(next, itertools.repeat(items))
    return items
