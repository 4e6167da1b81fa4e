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
from typing import Any, NamedTuple

from pyecho import _core
from pyecho._core import Closed, ConfigError, EchoError
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
from pyecho.threads import EXIT_SECONDS, Answer, Worker, close_at_exit

__all__ = ["Run"]

AHEAD_BYTES = 4 << 20
MOST_ITEMS_AHEAD = 256
"""Cheap items go from the feeder to the consumer in groups: the queue between them holds as many
items as these allow."""

_NOTHING = object()


class _Opened(NamedTuple):
    """A source whose first item was read."""

    passes: Iterator[Any]
    first: Any
    """`_NOTHING` if there is none."""
    seconds: float


class _Opening(NamedTuple):
    """The first item of an epoch is being read by the feeder."""

    epoch: int
    answer: Answer
    """What `_open` returns or raises."""


class Run:
    """Owns the stages and threads of a loader, from its first epoch to its end.

    The native iterator calls `begin` and `finish`. An iterator that is dropped half-way ends its
    epoch: the threads leave, and what they have read is dropped; or, if the source is an iterator,
    it is kept for the next epoch. `finish` and `close` may be called from any thread and by the
    garbage collector at any point; so there is no lock in here, and every step may be done twice.
    Ctrl-C may end `begin` in its waits, and the next `begin` goes on from there.

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

    def __init__(self, source: Source, config: Config, adapter: Adapter, *, held: int = 0) -> None:
        self._source = source
        self._config = config
        self._adapter = adapter
        self._held = held
        self._by_consumer = self._links_needed() == 0 and (source.in_memory or config.threads == 0)
        self._process = os.getpid()
        self._closed = False
        self._beginning = False  # a thread is inside begin()
        self._past = EchoStats()  # of stages that are gone
        self._filling: Filling | None = None
        self.epoch = 0
        """Number of the running epoch, else of the next one."""
        self._forget()
        close_at_exit(self)

    def _forget(self) -> None:
        self._stages: list[Any] = []  # the first reads the source, the last is the consumer's
        self._links: list[Link] = []
        self._capacity = 0
        self._workers: list[Worker] = []  # the feeder, then those of the links
        self._leaving: list[Worker] = []  # told to end, perhaps still inside the source
        self._opening: _Opening | None = None  # the first item is being read
        self._opened: _Opened | None = None  # it was read, and there are no stages yet
        self._opening_seconds = 0.0
        self._awaited = Answer()  # what begin() waits for
        self._unfinished = False  # an epoch has begun and is not at its end
        self._paused = False  # an unfinished epoch was left, and is kept
        self._warned = False  # that the next iteration goes on with it
        self._flows = False  # passes flow into each other, so the next epoch has begun

    # ------------------------------------------------------------ epochs

    def iterate(self, filling: Filling | None = None) -> Iterator[Any]:
        """Return an iterator for the next epoch, which begins with its first ``next()``."""
        if self._closed:
            raise _closed()
        self._filling = filling
        iterator: Iterator[Any] = _core.iterate(self)
        return iterator

    def begin(self) -> Any:
        """Begin the next epoch, and end an unfinished one. Return the consumer's stage."""
        if self._beginning and self._process == os.getpid():
            raise EchoError(
                "another thread is waiting for the first batch here; iterate from one thread at a "
                "time and hand the batches on"
            )
        self._beginning = True  # now close() leaves the stages to this thread
        try:
            return None if self._closed else self._begin()
        finally:
            self._beginning = False
            if self._closed:
                self._drop_stages()
                raise _closed() from None

    def _begin(self) -> Any:
        if self._process != os.getpid():  # the threads stayed in the parent process
            self._process = os.getpid()
            self._forget()
        self._retire()
        if self._unfinished and self._goes_on():
            self._go_on()
        elif self._unfinished or not self._flows:
            self._abandon()
            self._start()
        self._unfinished = True
        return self._stages[-1]

    def _retire(self) -> None:
        """End the iterators there are; none of them calls `finish` any more."""
        if self._stages:
            self._stages[-1]._retire()

    def finish(self, completed: bool) -> None:
        """End the epoch: at its end, or because its iterator died."""
        stages = self._stages  # another thread may drop them meanwhile
        if self._process != os.getpid() or not self._unfinished or not stages:
            return
        at_end = bool(stages[-1]._at_end)
        if at_end and any(link.failed for link in self._links):
            self._abandon()  # the stages before the link are in mid-epoch
        elif completed or at_end:
            self._unfinished = False
            self._flows = not at_end
            self.epoch += 1
            if self._capacity == 0:
                self._stages = []  # there was no item to make them of
        elif self._goes_on():
            self._paused = True
            for stage in stages:
                stage._set_paused(True)
            self._let_go()
        else:
            self._abandon()

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the next epoch; an unfinished one ends."""
        if not self._source.one_shot:
            self._retire()
            self._abandon()
        self.epoch = epoch

    def close(self) -> None:
        """End everything. Threads inside a source end when the source returns."""
        self._closed = True
        if self._beginning:
            self._awaited.give(_closed())
        elif self._process == os.getpid():
            self._drop_stages()

    def join(self) -> None:
        """Wait for the threads, `EXIT_SECONDS` at most for each."""
        for worker in self._leaving:
            worker.join(EXIT_SECONDS)

    def __del__(self) -> None:
        """End with the loader and its iterators."""
        self.close()

    @property
    def unfinished(self) -> bool:
        """Whether an epoch has begun and is not at its end."""
        return self._unfinished

    def stats(self) -> EchoStats:
        """Return the counts and times of all epochs so far."""
        stages = self._stages  # another thread may drop them meanwhile
        if not stages:
            return self._past
        # The first stage knows items and uses, the last one knows the consumer.
        counters = stages[0]._stats()
        consumer = stages[-1]._stats()
        rows = self._config.batch_size or 1
        ahead = counters["batches"] - consumer["batches"]  # in the hands of the links
        counters["emitted"] = max(0, counters["emitted"] - ahead * rows)
        for name in ("batches", "consumer_wait_ns", "downstream_ns"):
            counters[name] = consumer[name]
        stats = stats_of(counters, max(1, self._capacity))
        return self._past + replace(
            stats, source_seconds=stats.source_seconds + self._opening_seconds
        )

    # ------------------------------------------------------------ start and stop

    def _goes_on(self) -> bool:
        return self._source.one_shot and not self._stages[-1]._at_end

    def _go_on(self) -> None:
        """Go on with an unfinished epoch, since what was read cannot be read again."""
        if not self._warned:
            self._warned = True  # where the warning is an error, the next attempt goes on
            warnings.warn(
                f"the source ({type(self._source.object).__name__}) is an iterator, and an "
                "iteration over it was left half-way: this one goes on where that one was left; "
                "for epochs of their own pass something that can be iterated again",
                RuntimeWarning,
                stacklevel=4,
            )
        if self._paused:
            self._await_leaving()
            self._set_to_work(CallerContext())
        self._warned = False

    def _abandon(self) -> None:
        """Drop what the epoch that has begun has left; the threads leave."""
        if self._unfinished:
            self.epoch += 1
        if self._unfinished or self._flows:
            for stage in self._stages:
                stage.stop()
            self._let_go()
        self._unfinished = self._flows = self._paused = False

    def _let_go(self) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.end()
        self._leaving = [worker for worker in (*self._leaving, *workers) if worker.alive]

    def _drop_stages(self) -> None:
        self._past = replace(self.stats(), occupancy=0.0, outstanding_leases=0)
        stages, self._stages, self._links = self._stages, [], []
        self._capacity = 0
        self._opening_seconds = 0.0
        for stage in stages:
            stage.stop()
        self._let_go()
        self._unfinished = self._flows = self._paused = False

    def _start(self) -> None:
        """Begin a pass: with the stages there are, or read the first item and make them."""
        context = CallerContext()
        items = self._source.items()
        has_grown = self._config.capacity_for(items) > self._capacity
        if self._stages and (has_grown or self._opened is not None):
            self._drop_stages()  # the latter: the last attempt was interrupted
        if self._stages:
            self._await_leaving()
            passes = self._passes()
            self._begin_stages(items)
        else:
            passes, first = self._open(context)
            if first is _NOTHING:
                self._opened = None
                self._warn_of_nothing()
                nothing = _core.EchoQueue(Config(prefetch=1))
                nothing.close()
                self._stages, self._capacity = [nothing], 0
                return
            self._capacity = self._config.capacity_for(items)
            self._build(first)
            self._begin_stages(items)
        self._stages[0]._read(passes, by_consumer=self._by_consumer)
        self._unfinished = self._paused = True
        self._opened = None
        self._set_to_work(context)

    def _begin_stages(self, items: int | None) -> None:
        self._stages[0]._begin(self.epoch, items)
        for link in self._links:
            link.begin(self.epoch)

    def _set_to_work(self, context: CallerContext) -> None:
        """Give the feeder and the threads of the links their work for this pass."""
        for stage in self._stages:
            stage._set_paused(False)
        if self._by_consumer:
            self._paused = False
            return
        names = ["feeder", *(link.name for link in self._links for _ in range(link.threads))]
        for name in names[len(self._workers) :]:
            self._workers.append(Worker(name))
        feeder, *others = self._workers
        feeder.submit(partial(_feed, self._stages[0], context))
        for link in self._links:
            for worker in others[: link.threads]:
                worker.submit(partial(CallerContext().run, link.work))
            others = others[link.threads :]
        self._paused = False

    def _await_leaving(self) -> None:
        """Wait for threads that may still be inside the source or a stage; answers Ctrl-C."""
        if not any(worker.alive for worker in self._leaving):
            return
        answer = Answer()
        self._feeder().submit(partial(_join, tuple(self._leaving), answer))
        self._await(answer)

    def _await(self, answer: Answer) -> Any:
        """Wait for a thread's answer; close() gives one, too."""
        self._awaited = answer
        return _closed() if self._closed else answer.wait()

    def _feeder(self) -> Worker:
        if not self._workers:
            self._workers = [Worker("feeder")]
        return self._workers[0]

    # ------------------------------------------------------------ the source

    def _open(self, context: CallerContext) -> tuple[Iterator[Any], Any]:
        """Return the passes and the first item, which the feeder reads; answers Ctrl-C."""
        if self._opened is None or not self._source.one_shot:
            self._opened = (
                _open(self._passes()) if self._by_consumer else self._await_opened(context)
            )
            self._opening_seconds += self._opened.seconds
        return self._opened.passes, self._opened.first

    def _await_opened(self, context: CallerContext) -> _Opened:
        opening = self._opening
        if opening is not None and opening.epoch != self.epoch and not self._source.one_shot:
            opening = None  # set_epoch() came after Ctrl-C
            self._let_go()
        if opening is None:
            opening = _Opening(self.epoch, Answer())
            feeder = self._feeder()
            job = partial(
                _answer_open, self._passes(), context, tuple(self._leaving), opening.answer
            )
            self._opening = opening
            feeder.submit(job)
        opened = self._await(opening.answer)
        self._opening = None
        if not isinstance(opened, BaseException):
            return opened
        try:
            raise opened
        finally:
            del opened  # its traceback refers to this frame

    def _passes(self) -> Iterator[Any]:
        config = self._config
        count: int | None = 1
        if not self._source.one_shot:
            if config.steps_per_epoch is not None:
                count = None
            elif config.epochs is not None:
                count = max(1, config.epochs - self.epoch)
        filling, self._filling = self._filling, None
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
            stacklevel=5,
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

    def _echo_queue(self, first: Any, prepare: Callable[[Any], Any] | None = None) -> Any:
        """Make the stage of batch echoing."""
        config = self._config
        ahead = self._items_ahead(first)
        return _core.EchoQueue(
            replace(config, shuffle_buffer=self._capacity, prefetch=ahead, epoch=self.epoch),
            transform=transform_for(fetch=None, copied=config.copy, with_info=config.with_info),
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
        if self._by_consumer or config.max_bytes is not None or item_bytes is None:
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


# ---------------------------------------------------------------- jobs; none refers to the run


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


def _open(passes: Iterator[Any]) -> _Opened:
    began = time.perf_counter()
    items = next(passes, iter(()))
    first = next(items, _NOTHING)
    seconds = time.perf_counter() - began
    items = itertools.chain([first], items)
    return _Opened(itertools.chain([items], passes), first, seconds)


def _answer_open(
    passes: Iterator[Any],
    context: CallerContext,
    leaving: tuple[Worker, ...],
    answer: Answer,
) -> None:
    for worker in leaving:
        worker.join()
    try:
        answer.give(context.run(_open, passes))
    except BaseException as error:
        answer.give(error)


def _join(leaving: tuple[Worker, ...], answer: Answer) -> None:
    for worker in leaving:
        worker.join()
    answer.give(None)


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


def _closed() -> Closed:
    return Closed("this EchoLoader is closed; make a new one")
