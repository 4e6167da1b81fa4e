"""The run of a loader: its stages, their threads, and one epoch after the other.

    source ──▶ echo ──▶ links (collate and augment, upload) ──▶ consumer

The first stage reads the source: in a thread of the run, the feeder, or in the consumer's thread.
Every link has threads of its own. All of it is made when the first item is known, and serves all
epochs.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from pyecho import _core
from pyecho._core import Closed, ConfigError
from pyecho.adapter import Adapter
from pyecho.augment import Augmenter
from pyecho.buffer import EchoBuffer, stats_of
from pyecho.config import Config
from pyecho.context import CallerContext
from pyecho.link import Link, Make
from pyecho.nest import leaves_of, map_nest
from pyecho.progress import Filling
from pyecho.rows import row_spec, rows_of
from pyecho.sharing import transform_for
from pyecho.source import Source
from pyecho.spec import Field
from pyecho.stats import EchoStats
from pyecho.threads import EXIT_SECONDS, Worker, close_at_exit

__all__ = ["Run"]

AHEAD_BYTES = 4 << 20
MOST_ITEMS_AHEAD = 256
"""Cheap items go from the feeder to the consumer in groups: the queue between them holds as many
items as these allow."""

SLICE_SECONDS = 0.05
"""How long a wait may last before it looks whether the run was closed."""

_NOTHING = object()


class Run:
    """Owns the stages and threads of a loader, from its first epoch to its end.

    The native iterator calls `begin` and `finish`, by way of an `_Iteration`. An iterator that is
    dropped half-way ends its epoch: the threads leave, and what they have read is dropped; or, if
    the source is an iterator, it is kept for the next epoch.

    `finish` and `close` may be called from any thread, and by the garbage collector at any point.
    So there is no lock: whatever changes the run takes its turn, and what cannot have it at once is
    left to the call that is under way. A call may be cut short by Ctrl-C wherever it is, and the
    next one finds the run fit for use.

    Parameters
    ----------
    source
        What is read.
    config
        The loader's.
    adapter
        Speaks the library of the loader's arrays.
    held
        Batches that the consumer holds at a time, besides those of a loop.
    """

    _closed = True  # until it is made

    def __init__(self, source: Source, config: Config, adapter: Adapter, *, held: int = 0) -> None:
        self._source = source
        self._config = config
        self._adapter = adapter
        self._held = held
        self._by_consumer = self._links_needed() == 0 and (source.in_memory or config.threads == 0)
        self._process = os.getpid()
        self._past = EchoStats()  # of stages that are gone
        self.epoch = 0
        """Number of the running epoch, else of the next one."""
        self._forget()
        self._closed = False
        close_at_exit(self)

    def _forget(self) -> None:
        self._turns = _core.Turns()
        self._stages: list[Any] = []  # the first reads the source, the last is the consumer's
        self._links: list[Link] = []
        self._capacity = 0
        self._workers: list[Worker] = []  # the feeder, then those of the links
        self._leaving: list[Worker] = []  # told to end, perhaps still inside the source
        self._working = False  # every worker has its job for the pass that has begun
        self._opening: _Opening | None = None
        self._opening_seconds = 0.0
        self._unfinished: object | None = None  # token of the iteration that has begun
        self._warned = False  # that the next iteration goes on with it
        self._flows = False  # passes flow into each other, so the next epoch has begun

    # ------------------------------------------------------------ epochs

    def iterate(self, filling: Filling | None = None) -> Iterator[Any]:
        """Return an iterator for the next epoch, which begins with its first ``next()``."""
        self._check_open()
        iterator: Iterator[Any] = _core.iterate(_Iteration(self, filling))
        return iterator

    def begin(self, token: object, filling: Filling | None) -> Any:
        """Begin the next epoch, and end an unfinished one. Return the consumer's stage."""
        if self._process != os.getpid():  # the threads stayed in the parent process
            self._process = os.getpid()
            self._forget()
        return self._turns.run(partial(self._begin, token, filling))

    def _begin(self, token: object, filling: Filling | None) -> Any:
        self._check_open()
        self._retire()
        if self._unfinished is not None and self._goes_on():
            self._go_on()
        elif self._unfinished is not None or not self._flows:
            self._abandon()
            self._start(token, filling)
        self._unfinished = token
        return self._stages[-1]

    def _retire(self) -> None:
        """End the iterators there are."""
        if self._stages:
            self._stages[-1]._retire()

    def finish(self, token: object, completed: bool) -> None:
        """End the epoch of an iteration: at its end, or because its iterator died."""
        if not self._closed and self._process == os.getpid():
            self._turns.post(partial(self._finish, token, completed))

    def _finish(self, token: object, completed: bool) -> None:
        if self._unfinished is not token:
            return  # another one has begun since
        at_end = bool(self._stages[-1]._at_end)
        if completed or at_end:
            self._flows = not at_end
            if at_end and not all(stage._at_end for stage in self._stages):
                self._stop()  # a link has failed
            self.epoch += 1
            self._unfinished = None
            if self._capacity == 0:
                self._stages = []  # there was no item to make them of
        elif self._source.one_shot:
            self._pause()
        else:
            self._abandon()

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the next epoch; an unfinished one ends."""
        self._turns.post(partial(self._set_epoch, epoch))

    def _set_epoch(self, epoch: int) -> None:
        if not self._source.one_shot:
            self._retire()
            self._abandon()
            self._opening = None
        self.epoch = epoch

    def close(self) -> None:
        """End everything. Threads inside a source end when the source returns."""
        self._closed = True  # first: whoever waits in _begin() looks at it
        if self._process == os.getpid():
            self._turns.post(self._drop_stages)

    def join(self) -> None:
        """Wait for the threads, `EXIT_SECONDS` at most."""
        deadline = time.monotonic() + EXIT_SECONDS
        for worker in tuple(self._leaving):
            worker.ended(max(0.0, deadline - time.monotonic()))

    def __del__(self) -> None:
        """End with the loader and its iterators."""
        if not self._closed:
            self.close()

    @property
    def unfinished(self) -> bool:
        """Whether an epoch has begun and is not at its end."""
        return self._unfinished is not None

    def stats(self) -> EchoStats:
        """Return the counts and times of all epochs so far."""
        return self._past + self._stats()

    def _stats(self) -> EchoStats:
        """Return those of the stages there are."""
        stages = self._stages  # another thread may drop them meanwhile
        if not stages:
            return EchoStats()
        # The first stage knows items and uses, the last one knows the consumer.
        counters = stages[0]._stats()
        consumer = stages[-1]._stats()
        rows = self._config.batch_size or 1
        ahead = counters["batches"] - consumer["batches"]  # in the hands of the links
        counters["emitted"] = max(0, counters["emitted"] - ahead * rows)
        for name in ("batches", "consumer_wait_ns", "downstream_ns"):
            counters[name] = consumer[name]
        stats = stats_of(counters, max(1, self._capacity))
        return replace(stats, source_seconds=stats.source_seconds + self._opening_seconds)

    # ------------------------------------------------------------ start and stop

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this EchoLoader is closed; make a new one")

    def _goes_on(self) -> bool:
        return self._source.one_shot and bool(self._stages) and not self._stages[-1]._at_end

    def _go_on(self) -> None:
        """Go on with an unfinished epoch, since what was read cannot be read again."""
        if not self._warned:
            self._warned = True  # where the warning is an error, the next attempt goes on
            warnings.warn(
                f"the source ({type(self._source.object).__name__}) is an iterator, and an "
                "iteration over it was left half-way: this one goes on where that one was left; "
                "for epochs of their own pass something that can be iterated again",
                RuntimeWarning,
                stacklevel=5,
            )
        if not self._by_consumer and not self._working:
            self._pause()
            self._await_workers()
            for stage in self._stages:
                stage._set_paused(False)
            self._set_to_work(CallerContext())
        self._warned = False

    def _pause(self) -> None:
        """Have the threads leave; nothing is lost."""
        for stage in self._stages:
            stage._set_paused(True)
        self._let_go()

    def _abandon(self) -> None:
        """Drop what the epoch that has begun has left; the threads leave."""
        if self._unfinished is not None or self._flows:
            self._stop()
            self._let_go()
            self._flows = False
            if self._unfinished is not None:
                self._unfinished = None
                self.epoch += 1

    def _stop(self) -> None:
        for stage in self._stages:
            stage.stop()

    def _let_go(self) -> None:
        self._working = False
        while self._workers:
            self._leaving.append(self._workers[-1])
            self._workers[-1].end()
            self._workers.pop()

    def _drop_stages(self) -> None:
        self._stop()
        self._let_go()
        self._past += replace(self._stats(), occupancy=0.0, outstanding_leases=0)
        self._stages, self._links = [], []
        self._capacity = 0
        self._opening_seconds = 0.0
        self._opening = None
        self._unfinished = None
        self._flows = False

    def _start(self, token: object, filling: Filling | None) -> None:
        """Begin a pass: with the stages there are, or read the first item and make them."""
        context = CallerContext()
        items = self._source.items()
        if self._stages and self._config.capacity_for(items) > self._capacity:
            self._drop_stages()  # the source has grown
        self._await_workers()
        if self._stages and self._opening is None:
            passes = self._passes(filling)
        else:
            opening = self._open(context, filling)
            if opening.first is _NOTHING:
                self._opening = None
                self._warn_of_nothing()
                nothing = _core.EchoQueue(Config(prefetch=1))
                nothing.close()
                self._stages = [nothing]
                return
            passes = opening.passes
            if not self._stages:
                close_at_exit(self)  # before whatever the source has registered
                self._capacity = self._config.capacity_for(items)
                self._build(opening.first)
        self._begin_stages(items)
        self._stages[0]._read(passes, by_consumer=self._by_consumer)
        self._unfinished = token
        self._opening = None
        if not self._by_consumer:
            self._set_to_work(context)

    def _begin_stages(self, items: int | None) -> None:
        self._stages[0]._begin(self.epoch, items)
        for link in self._links:
            link.begin(self.epoch)

    def _set_to_work(self, context: CallerContext) -> None:
        """Give the feeder and the threads of the links their work for this pass."""
        self._working = False
        functions = [partial(_feed, self._stages[0], context)]
        for link in self._links:
            functions += [partial(CallerContext().run, link.work) for _ in range(link.threads)]
        names = ["feeder", *(link.name for link in self._links for _ in range(link.threads))]
        for name in names[len(self._workers) :]:
            self._workers.append(Worker(name))
        for worker, function in zip(self._workers, functions, strict=True):
            worker.give(function)
        self._working = True

    def _await_workers(self) -> None:
        """Wait for threads that may still be inside the source or a stage."""
        for worker in self._leaving:
            self._await(worker.ended)
        self._leaving = []
        for worker in self._workers:
            self._await(worker.done)

    def _await(self, what: Callable[[float], bool]) -> None:
        """Wait until ``what(seconds to wait)`` is true; answers Ctrl-C and close()."""
        while not what(SLICE_SECONDS):
            self._check_open()

    # ------------------------------------------------------------ the source

    def _open(self, context: CallerContext, filling: Filling | None) -> _Opening:
        """Read the first item, in the thread that will read the others."""
        opening = self._opening
        if opening is None:
            self._opening = opening = _Opening(self._passes(filling))
        if self._by_consumer:
            opening.read()
        else:
            if not self._workers:
                self._workers.append(Worker("feeder"))
            # A second time, if Ctrl-C has cut short the first: then there is nothing left to do.
            self._workers[0].give(partial(context.run, opening.read))
            self._await(self._workers[0].done)
        self._opening_seconds += opening.seconds
        opening.seconds = 0.0
        error, opening.error = opening.error, None
        if error is not None:
            self._opening = None
            try:
                raise error
            finally:
                del error  # its traceback has this frame
        return opening

    def _passes(self, filling: Filling | None) -> Iterator[Any]:
        config = self._config
        count: int | None = 1
        if not self._source.one_shot:
            if config.steps_per_epoch is not None:
                count = None
            elif config.epochs is not None:
                count = max(1, config.epochs - self.epoch)
        return _passes(self._source, self.epoch, count, filling)

    def _warn_of_nothing(self) -> None:
        if self._source.one_shot:
            reason = (
                "it is an iterator and has been read to its end; for several epochs pass something "
                "that can be iterated again (a list, a Dataset, a DataLoader, an object with "
                "__iter__)"
            )
        else:
            reason = "check its length and its filters"
        warnings.warn(
            f"the source ({type(self._source.object).__name__}) yielded nothing: {reason}",
            RuntimeWarning,
            stacklevel=6,
        )

    # ------------------------------------------------------------ stages

    def _links_needed(self) -> int:
        """Return how many links there will be."""
        return int(self._config.augment is not None or self._config.collate_fn is not None)

    def _build(self, first: Any) -> None:
        """Make the stages for items like the first one."""
        if self._config.batch_size is None:
            self._stages = [self._echo_queue(first)]
        else:
            self._stages = [self._echo_buffer(first)]
        if self._links_needed():
            self._add_augmentation()

    def _add_augmentation(self) -> None:
        config = self._config
        make = partial(
            _collate_and_augment,
            config.collate_fn,
            None if config.augment is None else Augmenter(config.augment, config.seed),
            config.with_info,
        )
        self._add_link("augment", make, threads=max(1, config.augment_workers))

    def _add_link(
        self,
        name: str,
        make: Make,
        *,
        threads: int = 1,
        fetch: Callable[[Any, int, int], Any] | None = None,
        upstream: Any = None,
    ) -> None:
        link = Link(
            self._stages[-1] if upstream is None else upstream,
            make,
            name=name,
            threads=threads,
            prefetch=self._config.prefetch,
            fetch=fetch,
        )
        self._links.append(link)
        self._stages.append(link.queue)

    def _echo_queue(
        self,
        first: Any,
        prepare: Callable[[Any], Any] | None = None,
        fetch: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Make the stage of batch echoing."""
        config = self._config
        ahead = self._items_ahead(first)
        return _core.EchoQueue(
            replace(config, shuffle_buffer=self._capacity, prefetch=ahead, epoch=self.epoch),
            transform=transform_for(fetch=fetch, copied=config.copy, with_info=config.with_info),
            prepare=prepare,
            shared=not config.copy,
        )

    def _items_ahead(self, first: Any) -> int:
        config = self._config
        item_bytes = _size_of(first)
        if config.max_bytes is not None:
            items = self._capacity + config.prefetch
            if items * (item_bytes or 0) > config.max_bytes:
                raise ConfigError(
                    f"{items} items (shuffle_buffer + prefetch) of {item_bytes} bytes need "
                    f"{items * (item_bytes or 0)} bytes, but max_bytes is {config.max_bytes}; "
                    "lower shuffle_buffer or prefetch, or raise max_bytes"
                )
        few = self._by_consumer or self._source.scarce or config.max_bytes is not None
        if few or item_bytes is None:
            return config.prefetch
        return max(config.prefetch, min(MOST_ITEMS_AHEAD, AHEAD_BYTES // max(1, item_bytes)))

    def _echo_buffer(self, first: Any, **echo: Any) -> EchoBuffer:
        """Make the stage of example echoing."""
        config = self._config
        field_of = self._adapter.field_of
        batched = self._source.batched
        if config.collate_fn is not None:
            spec: Any = Field((), object)
        elif config.unbatch:
            spec = row_spec(first, field_of)
        else:
            spec = map_nest(field_of, first)
            if batched:  # chunks of rows of arrays
                spec = map_nest(lambda field: Field(field.shape[1:], field.dtype), spec)
        options: dict[str, Any] = {
            "batch_size": config.batch_size,
            "factor": config.factor,
            "capacity": self._capacity,
            "unique_in_batch": config.unique_in_batch,
            "drop_last": config.drop_last,
            "with_info": config.with_info,
            "steps_per_epoch": config.steps_per_epoch,
            "held": 2 + self._held + self._batches_held(),
        }
        self._spec = spec
        threads = 0 if self._by_consumer else config.threads
        return EchoBuffer(
            spec,
            **options | echo,
            seed=config.seed,
            epoch=self.epoch,
            prefetch=config.prefetch,
            threads=threads,
            burst=max(1, rows_of(first)) if config.unbatch else 1,
            memory=config.memory,
            max_bytes=config.max_bytes,
            to_array=self._adapter.as_array,
            from_array=self._adapter.decoder(leaves_of(spec)),
            _name="EchoLoader",
            _batched=batched,
        )

    def _batches_held(self) -> int:
        """Return how many batches the links hold at a time, besides those of the consumer."""
        config = self._config
        return self._links_needed() * (config.prefetch + 1 + max(1, config.augment_workers))


class _Iteration:
    """What a native iterator calls. Its run knows the token alone, and so dies with its iterators.

    Parameters
    ----------
    run
        The run.
    filling
        Shows the first items of the epoch.
    """

    def __init__(self, run: Run, filling: Filling | None) -> None:
        self._run = run
        self._filling = filling
        self._token = object()

    def begin(self) -> Any:
        return self._run.begin(self._token, self._filling)

    def finish(self, completed: bool) -> None:
        self._run.finish(self._token, completed)


# ---------------------------------------------------------------- jobs; none refers to the run


class _Opening:
    """The first item of a source, which is read once, however often it is asked for."""

    def __init__(self, passes: Iterator[Any]) -> None:
        self.passes = passes
        """Before `read` all passes, after it those with all items, the first one included."""
        self.first: Any = _NOTHING
        self.seconds = 0.0
        self.error: BaseException | None = None
        self._is_read = False

    def read(self) -> None:
        """Read it. If the source raises, that is `error`."""
        if self._is_read:
            return
        self._is_read = True
        began = time.perf_counter()
        try:
            items = next(self.passes, iter(()))
            self.first = next(items, _NOTHING)
        except BaseException as error:
            self.error = error
        else:
            items = itertools.chain([self.first], items)
            self.passes = itertools.chain([items], self.passes)
        self.seconds = time.perf_counter() - began


def _passes(
    source: Source, epoch: int, count: int | None, filling: Filling | None
) -> Iterator[Iterator[Any]]:
    """Yield an iterator for each of `count` passes over the source; None: no end."""
    numbers = itertools.count(epoch) if count is None else range(epoch, epoch + count)
    for number in numbers:
        source.tell_epoch(number)
        items = source.read()
        if filling is not None:
            items = filling.counted(items, rows_of if source.batched else None)
            filling = None
        if count is None:  # a source that has become empty would never end
            first = next(items, _NOTHING)
            if first is _NOTHING:
                return
            items = itertools.chain([first], items)
            del first
        yield items
        del items


def _feed(stage: Any, context: CallerContext) -> None:
    try:
        context.run(stage._feed)
    except BaseException as error:
        stage.fail(error)


def _collate_and_augment(
    collate_fn: Callable[[list[Any]], Any] | None,
    augmenter: Augmenter | None,
    with_info: bool,
    emission: Any,
    epoch: int,
    number: int,
) -> Any:
    batch, info = emission if with_info else (emission, None)
    if collate_fn is not None:
        batch = collate_fn(batch)
    if augmenter is not None:
        batch = augmenter.apply(batch, epoch, number)
    return (batch, info) if with_info else batch


def _size_of(item: Any) -> int | None:
    """Return the bytes of an item, None if it cannot be told."""
    total = 0
    for leaf in leaves_of(item):
        if hasattr(leaf, "nbytes") and getattr(leaf, "is_cpu", True):
            total += int(leaf.nbytes)
        elif isinstance(leaf, str | bytes | int | float | complex | None):
            total += sys.getsizeof(leaf)
        else:
            return None
    return total
