"""The loader: wraps a source and yields its items echoed and shuffled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from pyecho import _core
from pyecho._core import Closed, ConfigError
from pyecho.adapter import Adapter
from pyecho.augment import Augment
from pyecho.device.memory import Memory, checked_memory
from pyecho.numpy import NUMPY
from pyecho.options import (
    checked_capacity,
    checked_factor,
    checked_int,
    checked_seed,
    checked_threads,
    checked_unique,
)
from pyecho.pipeline import Options, Pipeline
from pyecho.progress import Filling, require_tqdm, shown
from pyecho.run import Run
from pyecho.shutdown import JOIN_SECONDS
from pyecho.source import SourceTimer, checked_source, first_item, row_chunks, timed
from pyecho.stats import EchoStats

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyecho.device.echo import EchoArrays

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
        Batches (in batch echoing items) made ahead of the consumer; of small batches as many as
        4 MiB hold, up to 32.
    threads
        Native threads that assemble batches; None for all cores but one, at most 4.
    augment
        ``augment(batch, rng)`` is called on every use, in a thread of its own, with a
        `numpy.random.Generator` seeded by (seed, epoch, number of the batch); what it returns is
        what the loader yields.
    memory
        What batches are made of: ``"pageable"`` memory, or ``"pinned"`` memory, from which a CUDA
        device can copy while everybody goes on; ``"auto"`` is pinned if a device is in use.
    max_bytes
        Bound of the host memory for slots and batches.
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
        memory: Memory = "auto",
        max_bytes: int | None = None,
        with_info: bool = False,
        copy: bool = False,
        progress: bool = False,
    ) -> None:
        self._source = checked_source(source)
        checked = checked_factor(factor)
        self._options = Options(
            factor=checked,
            batch_size=None
            if batch_size is None
            else checked_int("batch_size", batch_size, 1, 2**30),
            unbatch=bool(unbatch),
            capacity=max(1, checked_capacity("shuffle_buffer", shuffle_buffer, checked, 0)),
            unique_in_batch=bool(unique_in_batch),
            drop_last=bool(drop_last),
            seed=checked_seed(seed),
            prefetch=checked_int("prefetch", prefetch, 1, 2**20),
            threads=checked_threads(threads),
            augment=augment,
            memory=checked_memory(memory),
            max_bytes=None
            if max_bytes is None
            else checked_int("max_bytes", max_bytes, 0, 2**63 - 1),
            with_info=bool(with_info),
            copy=bool(copy),
        )
        if augment is not None and not callable(augment):
            raise ConfigError(f"augment must be a function of (batch, rng), got {augment!r}")
        self._check_batch_options()
        self._arrays: EchoArrays | None = None
        self._echo_on: Literal["host", "device"] = "host"
        self._progress = bool(progress)
        self._epoch = 0
        self._closed = False
        self._runs: list[Run] = []  # all there ever were; a finished one is a few numbers
        if self._progress:
            require_tqdm()

    def _check_batch_options(self) -> None:
        options = self._options
        if options.batch_size is not None:
            if options.unique_in_batch:
                checked_unique(options.batch_size, options.capacity, "shuffle_buffer")
            return
        for name in ("unbatch", "unique_in_batch", "drop_last"):
            if getattr(options, name):
                raise ConfigError(
                    f"{name}=True makes new batches of examples, so it needs a batch_size"
                )

    def __repr__(self) -> str:
        """Show the source's type and the arguments that matter most."""
        options = self._options
        shown = [type(self._source).__name__, f"factor={options.factor:g}"]
        if options.batch_size is not None:
            shown.append(f"batch_size={options.batch_size}")
        if options.capacity > 1:
            shown.append(f"shuffle_buffer={options.capacity}")
        return f"{type(self).__module__}.{type(self).__name__}({', '.join(shown)})"

    # ------------------------------------------------------------ iteration

    def __iter__(self) -> Iterator[Any]:
        """Start an epoch: read the first item, start the threads, return the iterator."""
        if self._closed:
            raise Closed("this EchoLoader is closed; make a new one")
        for run in tuple(self._runs):
            if run.finished:
                run.join()  # its feeder may still be inside the source
        options = self._options
        timer = SourceTimer()
        items = timed(iter(self._items()), timer)
        first = first_item(items, self._source)
        run = Run(timer, options.capacity, options.batch_size or 1)
        filling = Filling(options.capacity) if self._progress else None
        pipeline = Pipeline(
            options, self._adapter, run, self._epoch, filling, self._arrays, self._echo_on
        )
        items = itertools.chain([first], items)
        if options.batch_size is None:
            pipeline.echo_batches(items, first)
        else:
            batched = options.unbatch or self._splits_array()
            pipeline.echo_examples(items, first, batched=batched)
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
            self._options.batch_size is not None
            and not self._options.unbatch
            and isinstance(self._source, np.ndarray)
            and not self._source.dtype.hasobject
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
        options = self._options
        if options.unbatch:
            raise TypeError(
                "with unbatch=True the number of examples is not known beforehand; where you know "
                "it, the number of batches is ceil(examples * factor / batch_size)"
            )
        if options.unique_in_batch:
            raise TypeError("with unique_in_batch=True the number of batches depends on the draws")
        uses = _core.uses_of_first(len(self._source), options.factor, options.seed, epoch)
        if options.batch_size is None:
            return uses
        return uses // options.batch_size if options.drop_last else -(-uses // options.batch_size)

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
