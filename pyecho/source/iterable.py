"""Iterables and map-style datasets: lists, iterators, loaders, and whatever has items by index."""

from __future__ import annotations

import inspect
import itertools
import operator
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FunctionType
from typing import Any

from pyecho._core import CheckpointError
from pyecho.source.arrays import in_memory
from pyecho.source.reader import Indexed, Source, rows_of_all
from pyecho.source.seen import Seen, digest_of_item
from pyecho.source.sniff import is_record_batch, length_of


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
        self._by_index = iterate in (None, Sequence.__iter__) and length_of(given) is not None
        starts_anywhere = self.in_memory or self._by_index or isinstance(given, Sequence)
        self.indexed = starts_anywhere and not unbatch  # a row may be in any batch
        self.batched = unbatch
        self._is_stateful = not self._by_index and is_stateful(given)
        self._pass: weakref.ref[_Pass] | None = None  # if it has a state
        self._ended = False  # the pass that was read last, or whose state was loaded
        self._loaded: dict[str, Any] | None = None

    def read(self, start: int = 0) -> Iterator[Any]:
        """Begin one pass."""
        items = self._items(start)
        own = self.indexed or isinstance(items, _Pass)
        items = Batches(items) if self.batched else items
        return items if own else self.seen.watched(items, digest_of_item)

    def _items(self, start: int) -> Iterator[Any]:
        self._ended, self._loaded = False, None
        if self._by_index or (start > 0 and not self.in_memory):
            return Indexed(partial(operator.getitem, self.object), start, len(self.object))
        items: Iterator[Any] = iter(self.object)
        self.one_shot = items is self.object
        if start > 0:
            in_memory: Any = items
            in_memory.__setstate__(start)  # of lists, tuples and ranges, at no cost
            return items
        if not self._is_stateful and not is_stateful(items):
            return _next_of(items)
        reading = _Pass(self, items)
        self._pass = weakref.ref(reading)
        return reading

    def length(self) -> int | None:
        """Return ``len()``; with `unbatch` the examples of lists and of loaders that tell them."""
        if self.unsure is not None:
            return None
        if not self.batched:
            return length_of(self.object)
        return rows_of_all(self.object) if self.in_memory else examples_of(self.object)[0]

    def rows_told(self) -> int | None:
        """Return how many rows the first batch of a `DataLoader` must have."""
        return examples_of(self.object)[1] if self.batched and not self.in_memory else None

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
        return {
            "iterator": holder is not self.object,
            "ended": self._ended,
            "state": _take_state(holder),
        }

    def load(self, state: dict[str, Any] | None) -> None:
        """Have the source itself go on where the state was taken."""
        if state is None:
            return
        if not state["iterator"]:
            if not self._is_stateful:
                super().load(state)
            _load_state(self.object, state["state"])
        self._pass = None
        self._ended, self._loaded = state["ended"], state

    def read_on(self, state: dict[str, Any]) -> Iterator[Any]:
        """Go on with the pass in which the state was taken."""
        self.load(state)
        if state["ended"]:
            return iter(())
        items = self.read()
        if state["iterator"]:
            if self._is_stateful or self.holder is None:
                raise CheckpointError(
                    f"the state holds one of the source's iterator, but iterators of this source "
                    f"({type(self.object).__name__}) have no load_state_dict"
                )
            _load_state(self.holder, state["state"])
        self._loaded = state
        return items

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the pass, which belongs to this one only."""
        return {**self.__dict__, "_pass": None, "seen": Seen()}


class _Pass(Iterator[Any]):
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


class Batches(Iterator[Any]):
    """Yields batches as `batch_of` returns them."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items
        self._taken: list[Any] = []

    def __next__(self) -> Any:
        """Return the next batch."""
        if not self._taken:
            self._taken.extend(itertools.islice(self._items, 1))
        if not self._taken:
            raise StopIteration
        batch = batch_of(self._taken[0])
        del self._taken[0]
        return batch


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


def is_stateful(value: Any) -> bool:
    """Return True if it has methods to take and to load a state, without more arguments."""
    return _state_methods(value) is not None


def _state_methods(value: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    for names in (("state_dict", "load_state_dict"), ("get_state", "set_state")):  # torch, Grain
        take, load = (getattr(value, name, None) for name in names)
        if not (callable(take) and callable(load)):
            continue
        try:
            inspect.signature(take).bind()
        except TypeError:  # MosaicML's StreamingDataset wants to be told how far it was read
            continue
        except ValueError:  # it tells no signature
            pass
        return take, load
    return None


def _take_state(value: Any) -> Any:
    methods = _state_methods(value)
    assert methods is not None
    return methods[0]()


def _load_state(value: Any, state: Any) -> None:
    methods = _state_methods(value)
    assert methods is not None
    methods[1](state)


def examples_of(loader: Any) -> tuple[int, int] | tuple[None, None]:
    """Return how many examples the batches of a loader have in all, and how many the first has.

    Knows `torch.utils.data.DataLoader` and the loaders of torchdata, MONAI, timm and fastai; of
    others these are None. Trusts the ``collate_fn`` to keep every example: one that makes several
    rows of an example, or drops some, shows by another number of rows in the first batch.
    """
    data = sys.modules.get("torch.utils.data")
    if data is None or not _keeps_batches(loader):
        return None, None
    if not isinstance(loader, data.DataLoader):
        length = getattr(type(loader), "__len__", None)
        if getattr(length, "__module__", "") == "fastai.data.load":
            return _batched(loader.n, loader.bs, loader.drop_last)
        inner = getattr(loader, "loader", None)  # timm's PrefetchLoader
        return examples_of(inner) if isinstance(inner, data.DataLoader) else (None, None)
    if isinstance(loader.dataset, data.IterableDataset):
        return None, None
    sampler = loader.batch_sampler
    if type(sampler).__name__ == "_RepeatSampler":  # timm's MultiEpochsDataLoader
        sampler = sampler.sampler
    times = getattr(loader, "repeats", 1)  # MONAI's ThreadDataLoader
    if isinstance(sampler, list | tuple):
        sizes = list(map(len, sampler))
        return (times * sum(sizes), sizes[0]) if sizes else (0, 0)
    if getattr(sampler, "even_batches", False) and sampler.batch_size:  # Accelerate's, of one rank
        ranks = sampler.num_processes if sampler.split_batches else 1
        size = int(sampler.batch_size)
        return len(sampler) * size // ranks, size // ranks  # it begins anew to fill the last
    if not isinstance(sampler, data.BatchSampler) or not _keeps_batches(sampler):
        return None, None  # also where batch_size=None: the dataset decides what an item is
    return _batched(length_of(sampler.sampler), sampler.batch_size, sampler.drop_last, times)


def _batched(
    examples: int | None, batch_size: int | None, drop_last: bool, times: int = 1
) -> tuple[int, int] | tuple[None, None]:
    if examples is None or batch_size is None:
        return None, None
    kept = examples - (examples % batch_size if drop_last else 0)
    return times * kept, min(kept, batch_size)


def _keeps_batches(source: Any) -> bool:
    """Return True unless another package's subclass may skip or repeat batches."""
    module = getattr(getattr(type(source), "__iter__", None), "__module__", "")
    return module.split(".")[0] in ("torch", "torchdata", "timm", "monai", "fastai")
