"""Sources: what the user gave, how one pass over it is read, and what is known beforehand."""

from __future__ import annotations

import itertools
import math
import operator
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from pyecho._core import CheckpointError, ConfigError, EchoError
from pyecho.integrations.ray import is_ray, ray_rows, ray_tables
from pyecho.items.nest import map_nest
from pyecho.items.rows import first_rows, rows_of
from pyecho.source.kinds import (
    arrow_reader,
    arrow_rows,
    check_source,
    columns_of,
    has_special,
    in_memory,
    is_arrow,
    is_mapped,
    is_stateful,
    length_of,
)
from pyecho.source.native import NativePass, example_of, is_native

CHUNK_BYTES = 1 << 20
TENSOR_ROWS = 256  # tensors made at a time when one is iterated by row: iter() would make all


class Source:
    """A source and what is known of it before it is read.

    ======================================  ==================================================
    Source                                  Items of a pass
    ======================================  ==================================================
    array, tensor                           its rows
    tuple of at least two arrays, tensors   tuples of their rows, ``(X[i], Y[i])``
    ``__arrow_c_stream__``: Arrow tables    dicts of their columns for each record batch; in example
                                            echoing, their rows
    ``__arrow_c_array__``: Arrow arrays     the array; in example echoing, its rows
    datasets and shards of Ray Data         as of Arrow tables, block by block
    ``__getitem__`` and ``__len__`` only    ``source[i]`` for i in ``range(len(source))``
    ``__pyecho_feed__``                     what it puts into the slots itself (`native`)
    anything else that can be iterated      what iterating it yields
    ======================================  ==================================================

    In example echoing the rows of arrays and tables come in chunks of about a megabyte (`batched`);
    for a `collate_fn`, which takes examples as they are, one by one.

    Raises `ConfigError` if the source cannot be iterated, if iterating it would yield names or
    characters instead of data, or if it is a tuple of arrays of different lengths.
    """

    object: Any
    """The source, as the user passed it."""

    in_memory: bool
    """True if reading never waits, so that it needs no thread of its own."""

    one_shot: bool
    """True for an iterator, which cannot be read a second time. Known for certain after `read`;
    before, any object with ``__next__`` counts as an iterator."""

    batched: bool
    """True if `read` yields batches whose rows are the examples."""

    native: bool
    """True if it fills slots itself, see `pyecho.source.native`; `read` returns a `NativePass`."""

    skipped: bool = False
    """True once it was read to find the position of a state."""

    pass_items: float | None = None
    """Items that a pass is to have: the first ones again where there are fewer, and no more.
    Infinite: that is about to be agreed on. None: those there are."""

    bounded: bool = False
    """True if what a pass has beyond `items` is dropped; a native source is not bounded."""

    exceeded: bool = False
    """True once something was dropped."""

    scarce: bool = False
    """True if whoever makes the items waits for those that are kept: read no more than asked."""

    def __init__(
        self, source: Any, *, batch_size: int | None, unbatch: bool, collated: bool = False
    ) -> None:
        self.native = is_native(source)
        self._ray = is_ray(source)
        if not self.native and not self._ray:
            check_source(source)
        elif self.native and (batch_size is None or unbatch or collated):
            raise ConfigError(
                f"the source ({type(source).__name__}) fills slots with examples itself "
                "(__pyecho_feed__), so it needs a batch_size, and neither unbatch nor collate_fn"
            )
        columns = columns_of(source)
        self.object = source
        self._arrow = self._ray or is_arrow(source)
        self.in_memory = all(map(in_memory, (source,) if columns is None else columns))
        self.one_shot = isinstance(source, Iterator)
        self._iterator: weakref.ref[Any] | None = None  # if it has a state of its own
        self._loaded: dict[str, Any] | None = None  # its state, until it is read
        self._columns = columns
        self._unbatch = unbatch
        self._by_row = batch_size is not None
        self._chunked = (
            columns is not None
            and batch_size is not None
            and not collated
            and not unbatch
            and not any(isinstance(c, np.ndarray) and c.dtype.hasobject for c in columns)
        )
        self.batched = unbatch or self._chunked or (self._arrow and self._by_row and not collated)

    def read(self, start: int = 0) -> Iterator[Any]:
        """Begin one pass. Call this in the thread that will read the items.

        `start`: leave out so many items, at no cost. Only if `indexed`.
        """
        if self.native:
            return self._read(start)
        if self.pass_items is None:
            return self._bound(self._read(start), start)
        own = self.items()
        return self._evened(self._read(start % own if own else start), start)

    def _evened(self, items: Iterator[Any], place: Any) -> Iterator[Any]:
        """Yield as many items as a pass is to have; `place`: the number of the first one."""
        for times_read in itertools.count(1):
            begin = place
            for item in items:
                left = (self.pass_items or 0) - place  # which may be known by now only
                if left <= 0:
                    return
                rows = rows_of(item) if self.batched else 1
                place += min(rows, left)
                yield item if rows <= left else first_rows(item, left)
            if self.pass_items in (place, math.inf):
                return
            if self.stateful is not None or (times_read > 1 and place == begin):
                raise EchoError(
                    f"the source ({type(self.object).__name__}) has ended after {place} items, and "
                    f"was to yield {self.pass_items}, as the longest one of all ranks"
                )
            items = self._read(0)

    def _bound(self, items: Iterator[Any], place: int) -> Iterator[Any]:
        """Drop what lies beyond the length; an iterator keeps it for its next pass.

        `place`: the number of the first item.
        """
        own = self.items() if self.bounded else None
        if own is None:
            return items
        if self.batched:
            return self._bound_rows(items, own - place)
        first = itertools.islice(items, max(0, own - place))
        return first if self.one_shot else itertools.chain(first, self._drop(items))

    def _bound_rows(self, items: Iterator[Any], left: int) -> Iterator[Any]:
        for item in items:
            rows = rows_of(item)
            if rows > left:
                self.exceeded = True
                if left > 0:
                    yield first_rows(item, left)
                return
            left -= rows
            yield item

    def _drop(self, items: Iterator[Any]) -> Iterator[Any]:
        for _ in items:
            self.exceeded = True
            return
        yield from ()

    def _read(self, start: int) -> Iterator[Any]:
        self._loaded = None
        if self.native:
            return NativePass(self.object, start)
        if self._arrow:
            return self._read_arrow(start)
        if self._columns is None:
            return self._iterated(start)
        rows = TENSOR_ROWS
        if self._chunked:
            total_bytes = sum(column.nbytes for column in self._columns)
            rows = max(1, CHUNK_BYTES * len(self._columns[0]) // max(1, total_bytes))
        parts = [_chunks(column, rows, start, copied=self._chunked) for column in self._columns]
        if not self._chunked:
            parts = [itertools.chain.from_iterable(chunks) for chunks in parts]
        if len(parts) == 1:
            return parts[0]
        make: Callable[[Iterable[Any]], Any] = getattr(type(self.object), "_make", tuple)
        return map(make, zip(*parts, strict=True))

    def _iterated(self, start: int) -> Iterator[Any]:
        if start > 0 and self.in_memory:
            return itertools.islice(self.object, start, None)
        if start > 0 or not has_special(self.object, "__iter__"):
            length = length_of(self.object)
            if length is not None:
                return (self.object[index] for index in range(start, length))
        iterator: Iterator[Any] = iter(self.object)
        self.one_shot = iterator is self.object
        self._iterator = weakref.ref(iterator) if is_stateful(iterator) else None
        return iterator

    def _read_arrow(self, start: int) -> Iterator[Any]:
        chunk = CHUNK_BYTES if self._by_row else None
        batches: Iterator[Any]
        if self._ray:
            tables = ray_tables(self.object)
            batches = itertools.chain.from_iterable(arrow_reader(each, chunk) for each in tables)
        else:
            batches = reader = arrow_reader(self.object, chunk)
            skipped = reader.skip(start)
            if skipped < start:
                raise too_short(skipped, start)
        return batches if self.batched or not self._by_row else _rows(batches)

    @property
    def indexed(self) -> bool:
        """True if `read` can start anywhere."""
        if self.native:
            return True
        if self._arrow:
            return self._by_row and not self.one_shot and not self._ray
        if self._unbatch:
            return False  # where a row is depends on the batches before it
        return (
            self._columns is not None
            or self.in_memory
            or isinstance(self.object, Sequence)
            or (not has_special(self.object, "__iter__") and length_of(self.object) is not None)
        )

    def example(self) -> Any:
        """Return an example like those of a native source."""
        return example_of(self.object)

    # ------------------------------------------------------------ states of the source's own

    @property
    def stateful(self) -> Any:
        """Object with a state of its own: the source, the iterator of this pass, or None.

        That is an object with ``state_dict`` and ``load_state_dict``.
        """
        if self.native or self._arrow:
            return None  # whatever it has, it does not tell what it has put, or where its stream is
        if is_stateful(self.object):
            return self.object
        return None if self._iterator is None else self._iterator()

    def state(self) -> dict[str, Any] | None:
        """Return the state of the source; nobody may be reading it."""
        holder = self.stateful
        if holder is None:
            return None
        if self._loaded is not None:  # some can tell theirs only once they have been read
            return self._loaded
        return {"iterator": holder is not self.object, "state": holder.state_dict()}

    def read_on(self, state: dict[str, Any], place: int) -> Iterator[Any]:
        """Go on with the pass in which the state was taken, where it had yielded so many items."""
        self.load(state)
        items = self._read(0)
        if state["iterator"]:
            holder = self.stateful
            if holder is None:
                raise CheckpointError(
                    f"the state holds one of the source's iterator, but those of this source "
                    f"({type(self.object).__name__}) have no load_state_dict"
                )
            holder.load_state_dict(state["state"])
        return items if self.pass_items is not None else self._bound(items, place)

    def load(self, state: dict[str, Any] | None) -> None:
        """Have the source itself go on where the state was taken."""
        if state is None or state["iterator"]:
            return
        if not is_stateful(self.object):
            raise CheckpointError(
                f"the state holds one of the source, but this one ({type(self.object).__name__}) "
                "has no load_state_dict"
            )
        self.object.load_state_dict(state["state"])
        self._loaded = state

    def items(self) -> int | None:
        """Return the number of items in a pass, or None if it is unknown.

        Counts what the echo stage counts: examples in example echoing (with `unbatch`, too), items
        in batch echoing. Trusts ``len()`` of sources and samplers, and trusts a ``collate_fn`` to
        keep every example. With `unbatch` a list of batches is walked through on every call.
        """
        if self._arrow:
            rows = ray_rows if self._ray else arrow_rows
            return rows(self.object) if self._by_row else None
        if self._unbatch:
            return self._examples()
        return length_of(self.object if self._columns is None else self._columns[0])

    def _examples(self) -> int | None:
        source = self.object
        if self._columns is not None:
            batches = next((column for column in self._columns if column.ndim > 1), None)
            if batches is not None:
                return int(batches.shape[0] * batches.shape[1])
        if self.in_memory:
            try:
                return sum(map(rows_of, self._read(0)))
            except ConfigError:  # a batch without arrays
                return None
        data = sys.modules.get("torch.utils.data")
        if data is not None and isinstance(source, data.DataLoader):
            return examples_of_data_loader(source, data)
        return None

    def tell_epoch(self, epoch: int) -> None:
        """Call ``set_epoch(epoch)`` where it exists: on the source and on what it reads from.

        That is its ``sampler``, its ``batch_sampler``, the samplers within that, and its
        ``dataset``; an object found twice is told once.
        """
        targets = [self.object, getattr(self.object, "sampler", None)]
        sampler = getattr(self.object, "batch_sampler", None)
        while sampler is not None and len(targets) < 8:  # Accelerate puts one into another
            targets += [sampler, getattr(sampler, "sampler", None)]
            sampler = getattr(sampler, "batch_sampler", None)
        if targets[1] is not self.object:  # else a loader of pyecho's, which may be passes ahead
            targets.append(getattr(self.object, "dataset", None))
        for target in {id(target): target for target in targets}.values():
            set_epoch = getattr(target, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)


# ---------------------------------------------------------------- reading


def _chunks(array: Any, rows: int, start: int, *, copied: bool) -> Iterator[Any]:
    """Yield an array in chunks of so many rows; `copied`: read in if memory-mapped."""
    copied = copied and isinstance(array, np.ndarray) and is_mapped(array)
    for begin in range(start, len(array), rows):
        chunk = array[begin : begin + rows]
        yield np.array(chunk) if copied else chunk


def _rows(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows of batches one by one."""
    for batch in batches:
        for row in range(rows_of(batch)):
            yield map_nest(operator.itemgetter(row), batch)


def too_short(items: int, needed: int) -> CheckpointError:
    """Return the error of a source that has fewer items than a state needs."""
    return CheckpointError(
        f"the source ended after {items} items, and the state was taken after it had yielded "
        f"{needed}; a source without a state_dict must yield the same items again"
    )


# ---------------------------------------------------------------- counting examples


def examples_of_data_loader(loader: Any, data: Any) -> int | None:
    """Return how many examples the batches of a `torch.utils.data.DataLoader` have in all."""
    if not _iterates_as_torch(loader):
        return None
    if isinstance(loader.dataset, data.IterableDataset):
        return None
    sampler = loader.batch_sampler
    if isinstance(sampler, list | tuple):
        return sum(map(len, sampler))
    if getattr(sampler, "even_batches", False) and sampler.batch_size:  # Accelerate's, of one rank
        ranks = sampler.num_processes if sampler.split_batches else 1
        return len(sampler) * int(sampler.batch_size) // ranks  # it begins anew to fill the last
    if not isinstance(sampler, data.BatchSampler) or not _iterates_as_torch(sampler):
        return None  # also where batch_size=None: the dataset decides what an item is
    examples = length_of(sampler.sampler)
    if examples is None:
        return None
    left_out = examples % int(sampler.batch_size) if sampler.drop_last else 0
    return examples - left_out


def _iterates_as_torch(source: Any) -> bool:
    """Return True unless another package's subclass may skip or repeat batches."""
    module = getattr(type(source).__iter__, "__module__", "")
    return module.split(".")[0] in ("torch", "torchdata")
