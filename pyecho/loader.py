"""The loader: wraps a source and yields its items echoed and shuffled."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pyecho import _core
from pyecho._core import Closed, ConfigError
from pyecho.adapter import Adapter
from pyecho.augment import Augment, augmented
from pyecho.buffer import EchoBuffer
from pyecho.echoing import share, transform_for
from pyecho.numpy import NUMPY
from pyecho.options import (
    checked_capacity,
    checked_factor,
    checked_int,
    checked_seed,
    checked_threads,
    checked_unique,
)
from pyecho.progress import Filling, require_tqdm, shown
from pyecho.run import Run
from pyecho.shutdown import JOIN_SECONDS
from pyecho.source import SourceTimer, checked_source, first_item, row_chunks, timed
from pyecho.spec import leaves_of, map_nest, row_spec, rows_of
from pyecho.stats import EchoStats

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["EchoLoader"]


class EchoLoader:
    """Iterate a source with each of its items used several times, shuffled.

    With ``batch_size=None`` (batch echoing) items pass through by reference, whatever they are,
    and are never copied. With a `batch_size` (example echoing) items are examples, or batches
    that `unbatch` splits, and new batches are assembled natively from their uses; such batches are
    private and writable. Each ``iter()`` is one epoch: one pass over the source in a thread of
    its own. The output depends on the source, the arguments and the epoch, not on threads or
    timing. See the README for the paper's variants.

    Parameters
    ----------
    source
        Any iterable; for several epochs one that can be iterated again.
    factor
        How often each item is used: an int, or a float whose fraction is the chance of one more
        use, drawn per item.
    batch_size
        Rows of a batch (example echoing), or None (batch echoing).
    unbatch
        The source yields batches: split them into examples first.
    shuffle_buffer
        Distinct items among which each use is drawn; 0 or 1 means that repeats follow each other.
    unique_in_batch
        Never put an item into one batch twice. Needs ``shuffle_buffer >= batch_size``.
    drop_last
        Leave out batches with fewer than `batch_size` rows.
    seed
        Selects the random numbers, together with the epoch.
    prefetch
        Batches (in batch echoing items) made ahead of the consumer.
    threads
        Native threads that assemble batches; None for all cores but one, at most 4.
    augment
        ``augment(batch, rng)`` is called on every use, in a thread of its own, with a
        `numpy.random.Generator` seeded by (seed, epoch, number of the batch); what it returns is
        what the loader yields.
    max_bytes
        Bound of the memory for slots and batches.
    with_info
        Yield ``(batch, info)`` with an `EchoInfo`.
    copy
        Batch echoing: give every use its own writable copy, instead of sharing one storage.
    progress
        Show a tqdm progress bar.

    Raises
    ------
    ConfigError
        If an argument is wrong; when the first item is known also if `max_bytes` is too small.
    """

    _adapter: ClassVar[Adapter] = NUMPY

    def __init__(
        self,
        source: Any,
        factor: float = 2,
        *,
        batch_size: int | None = None,
        unbatch: bool = False,
        shuffle_buffer: int = 0,
        unique_in_batch: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        prefetch: int = 2,
        threads: int | None = None,
        augment: Augment | None = None,
        max_bytes: int | None = None,
        with_info: bool = False,
        copy: bool = False,
        progress: bool = False,
    ) -> None:
        self._source = checked_source(source)
        self._factor = checked_factor(factor)
        self._batch_size = (
            None if batch_size is None else checked_int("batch_size", batch_size, 1, 2**30)
        )
        self._capacity = max(1, checked_capacity("shuffle_buffer", shuffle_buffer, self._factor, 0))
        self._seed = checked_seed(seed)
        self._prefetch = checked_int("prefetch", prefetch, 1, 2**20)
        self._threads = checked_threads(threads)
        self._max_bytes = (
            None if max_bytes is None else checked_int("max_bytes", max_bytes, 0, 2**63 - 1)
        )
        if augment is not None and not callable(augment):
            raise ConfigError(f"augment must be a function of (batch, rng), got {augment!r}")
        if self._batch_size is None:
            for name, value in (
                ("unbatch", unbatch),
                ("unique_in_batch", unique_in_batch),
                ("drop_last", drop_last),
            ):
                if value:
                    raise ConfigError(
                        f"{name}=True makes new batches of examples, so it needs a batch_size"
                    )
        elif unique_in_batch:
            checked_unique(self._batch_size, self._capacity, "shuffle_buffer")
        self._unbatch = bool(unbatch)
        self._unique_in_batch = bool(unique_in_batch)
        self._drop_last = bool(drop_last)
        self._augment = augment
        self._with_info = bool(with_info)
        self._copy = bool(copy)
        self._progress = bool(progress)
        self._epoch = 0
        self._closed = False
        self._runs: list[Run] = []  # all there ever were; a finished one is a few numbers
        if self._progress:
            require_tqdm()

    # ------------------------------------------------------------ iteration

    def __iter__(self) -> Iterator[Any]:
        """Start an epoch: read the first item, start the threads, return the iterator."""
        if self._closed:
            raise Closed("this EchoLoader is closed; make a new one")
        for run in tuple(self._runs):
            if run.finished:
                run.join()  # its feeder may still be inside the source
        timer = SourceTimer()
        items = timed(iter(self._items()), timer)
        first = first_item(items, self._source)
        run = Run(timer, self._capacity, self._batch_size or 1)
        filling = Filling(self._capacity) if self._progress else None
        if self._batch_size is None:
            self._add_queue(run, itertools.chain([first], items), first, filling)
        else:
            self._add_buffer(run, itertools.chain([first], items), first, filling)
        self._epoch += 1
        self._runs.append(run)
        iterator = run.start()
        if filling is None:
            return iterator
        return shown(iterator, self._length_or_none(self._epoch - 1), filling)

    def _items(self) -> Any:
        """Return the source, or its rows in chunks where an array is echoed by example."""
        if self._splits_array():
            return row_chunks(self._source)
        return self._source

    def _splits_array(self) -> bool:
        return (
            self._batch_size is not None
            and not self._unbatch
            and isinstance(self._source, np.ndarray)
            and not self._source.dtype.hasobject
        )

    def _add_queue(
        self, run: Run, items: Iterator[Any], first: Any, filling: Filling | None
    ) -> None:
        self._check_queue_bytes(first)
        queue = _core.EchoQueue(
            capacity=self._capacity,
            factor=self._factor,
            seed=self._seed,
            epoch=self._epoch,
            prefetch=self._prefetch,
            transform=transform_for(with_info=self._with_info, copied=self._copy),
        )

        def put_shared(item: Any) -> None:
            queue.put(*share(item))

        def put(item: Any) -> None:
            queue.put(item, None)

        into = put if self._copy else put_shared
        run.add(
            queue, "feeder", items, into if filling is None else filling.around(into, lambda _: 1)
        )
        self._add_augment(run, queue)

    def _add_buffer(
        self, run: Run, items: Iterator[Any], first: Any, filling: Filling | None
    ) -> None:
        adapter = self._adapter
        batched = self._unbatch or self._splits_array()
        spec = row_spec(first, adapter.field_of) if batched else map_nest(adapter.field_of, first)
        assert self._batch_size is not None
        buffer = EchoBuffer(
            spec,
            batch_size=self._batch_size,
            factor=self._factor,
            capacity=self._capacity,
            seed=self._seed,
            epoch=self._epoch,
            unique_in_batch=self._unique_in_batch,
            drop_last=self._drop_last,
            prefetch=self._prefetch,
            threads=self._threads,
            burst=max(1, rows_of(first)) if self._unbatch else 1,
            max_bytes=self._max_bytes,
            # With augment also what waits in its queue (prefetch + 1) and what its thread is at.
            held=2 if self._augment is None else self._prefetch + 4,
            with_info=self._with_info,
            to_array=adapter.as_array,
            from_array=adapter.decoder(leaves_of(spec)),
        )
        into: Callable[[Any], None] = buffer.put_batch if batched else buffer.put
        if filling is not None:
            into = filling.around(into, rows_of if batched else lambda _: 1)
        run.add(buffer, "feeder", items, into)
        self._add_augment(run, buffer)

    def _add_augment(self, run: Run, stage: Any) -> None:
        if self._augment is None:
            return
        batches = augmented(
            stage._iterate(None), self._augment, self._seed, self._epoch, with_info=self._with_info
        )
        queue = _core.EchoQueue(
            capacity=1, factor=1.0, seed=0, epoch=0, prefetch=self._prefetch, transform=None
        )
        run.add(queue, "augment", batches, lambda batch: queue.put(batch, None))

    def _check_queue_bytes(self, first: Any) -> None:
        if self._max_bytes is None:
            return
        items = self._capacity + self._prefetch
        item_bytes = sum(int(getattr(leaf, "nbytes", 0)) for leaf in leaves_of(first))
        if items * item_bytes > self._max_bytes:
            raise ConfigError(
                f"{items} items (shuffle_buffer + prefetch) of {item_bytes} bytes need "
                f"{items * item_bytes} bytes, but max_bytes is {self._max_bytes}; "
                "lower shuffle_buffer or prefetch, or raise max_bytes"
            )

    # ------------------------------------------------------------ length, epochs, statistics

    def __len__(self) -> int:
        """Return the number of batches of the next epoch.

        Raises `TypeError` where it cannot be known: the source has no length, `unbatch` hides the
        number of examples, or `unique_in_batch` leaves it to the draws.
        """
        return self._length(self._epoch)

    def _length(self, epoch: int) -> int:
        if not hasattr(self._source, "__len__"):
            raise TypeError(
                f"the source ({type(self._source).__name__}) has no len(), so this loader has none"
            )
        if self._unbatch:
            raise TypeError("with unbatch=True the number of examples is not known beforehand")
        if self._unique_in_batch:
            raise TypeError("with unique_in_batch=True the number of batches depends on the draws")
        uses = _core.uses_of_first(len(self._source), self._factor, self._seed, epoch)
        if self._batch_size is None:
            return uses
        return uses // self._batch_size if self._drop_last else -(-uses // self._batch_size)

    def _length_or_none(self, epoch: int) -> int | None:
        try:
            return self._length(epoch)
        except TypeError:
            return None

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the next epoch, which with the seed selects the random numbers.

        A source (or its sampler) that has a `set_epoch` of its own is told as well.
        """
        self._epoch = checked_int("epoch", epoch, 0, 2**63)
        for target in (self._source, getattr(self._source, "sampler", None)):
            tell = getattr(target, "set_epoch", None)
            if tell is not None:
                tell(epoch)

    def stats(self) -> EchoStats:
        """Return counts and times over all epochs of this loader, the running one included."""
        return sum((run.stats() for run in tuple(self._runs)), EchoStats())

    # ------------------------------------------------------------ end

    def close(self) -> None:
        """Stop every iteration of this loader; iterators then raise `Closed`. Idempotent."""
        self._closed = True
        runs = tuple(self._runs)
        for run in runs:
            run.finish()
        for run in runs:
            run.join(JOIN_SECONDS)

    def __enter__(self) -> Self:
        """Return the loader."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the loader."""
        self.close()
