"""One pass over a source: its native stages, its threads, and how they end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyecho import shutdown
from pyecho._core import Closed
from pyecho.buffer import stats_of
from pyecho.source import SourceTimer
from pyecho.stats import EchoStats

if TYPE_CHECKING:
    from pyecho.device.echo import DeviceEcho
    from pyecho.device.upload import Uploader

__all__ = ["Run"]


def feed(items: Iterator[Any], put: Callable[[Any], None], stage: Any) -> None:
    """Put all items into a stage; then close it, or fail it with what the source raised.

    Ends early, without a word, when the stage is stopped. Runs in a thread of its own.
    """
    while True:
        try:
            item = next(items)
        except StopIteration:
            stage.close()
            return
        except BaseException as error:
            stage.fail(error)
            return
        try:
            put(item)
        except Closed:
            return
        except BaseException as error:
            stage.fail(error)
            return
        del item


class Run:
    """The stages and threads of one iteration, from source to consumer.

    The consumer's iterator calls `finish` at its end or death, so that an abandoned iteration
    leaves no thread. `finish` may be called more than once, from any thread and by the garbage
    collector at any point; so there is no lock in here, and every step may be done twice.

    Parameters
    ----------
    timer
        Where the time inside the source is counted.
    capacity
        Items in the shuffle pool.
    batch_rows
        Uses in a batch; 1 in batch echoing.
    """

    def __init__(self, timer: SourceTimer, capacity: int, batch_rows: int) -> None:
        self._timer = timer
        self._capacity = capacity
        self._batch_rows = batch_rows
        self._process = os.getpid()
        self._stages: list[Any] = []
        self._threads: list[threading.Thread] = []
        self._final: EchoStats | None = None
        self.uploader: Uploader | None = None
        """What brings batches to a device, if anything does."""
        self.echo: DeviceEcho | None = None
        """What echoes examples on a device; then the first stage only collects them."""

    def add(self, stage: Any, name: str, items: Iterator[Any], put: Callable[[Any], None]) -> None:
        """Add a stage, fed by a thread of its own once the run starts."""
        self._stages.append(stage)
        self._threads.append(
            threading.Thread(
                target=feed, args=(items, put, stage), name=f"pyecho-{name}", daemon=True
            )
        )

    def start(self) -> Iterator[Any]:
        """Start the threads and return the consumer's iterator."""
        shutdown.watch(self)
        iterator: Iterator[Any] = self._stages[-1]._iterate(self)
        for thread in self._threads:
            thread.start()
        return iterator

    def stats(self) -> EchoStats:
        """Return the counts and times of this run so far."""
        # Before the look at `_final`: finish(), in another thread, sets it and then drops these.
        stages, echo, uploader = self._stages, self.echo, self.uploader
        if self._final is not None:
            return self._final
        # The first stage knows items and uses, the last one knows the consumer.
        counters = stages[0]._stats()
        consumer = stages[-1]._stats()
        ahead = counters["batches"] - consumer["batches"]  # in the hands of the augmentation
        counters["emitted"] = max(0, counters["emitted"] - ahead * self._batch_rows)
        for name in ("batches", "consumer_wait_ns", "downstream_ns"):
            counters[name] = consumer[name]
        if echo is not None:
            counters["emitted"], counters["resident"] = echo.emitted, echo.resident
        return replace(
            stats_of(counters, self._capacity),
            source_seconds=self._timer.seconds,
            h2d_bytes=0 if uploader is None else uploader.h2d_bytes,
        )

    @property
    def finished(self) -> bool:
        """Whether `finish` has been called."""
        return self._final is not None

    def finish(self) -> None:
        """Stop everything. Threads inside a source end when the source returns."""
        if os.getpid() != self._process:
            return  # the threads stayed in the parent process
        for stage in self._stages:
            stage.stop()
        self._final = replace(self.stats(), occupancy=0.0, outstanding_leases=0)
        self._stages = []
        self.uploader = self.echo = None

    def join(self, timeout: float | None = None) -> None:
        """Wait for the threads, `timeout` seconds at most for each."""
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(timeout)
