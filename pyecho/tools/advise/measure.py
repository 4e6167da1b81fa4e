"""Measures a loader's pipeline in short runs: times of its parts, and what decides remedies.

`measured_advice` runs the source freely, then the whole pipeline with the step, then a slow source
with workers.
"""

from __future__ import annotations

import copy
import math
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pyecho._core import Closed, ConfigError, EchoError, available_cores
from pyecho.config import Config
from pyecho.run.host import size_of
from pyecho.run.trace import Event, Trace
from pyecho.tools.advise.model import FACTORS, SLACK, Advice, Facts, Times
from pyecho.tools.advise.remedies import advice_on
from pyecho.tools.info import found_in
from pyecho.worth import Worth
from pyecho.worth.estimate import MOST_FACTOR

if TYPE_CHECKING:
    from pyecho.run.run import Run
    from pyecho.source import Source
    from pyecho.stats import EchoStats

FEWEST = 8
"""Batches without which nothing is measured."""

WORKERS_SECONDS = 20.0
"""Time that workers have to begin, beside four times that of the run without them."""


class Loader(Iterable[Any], Protocol):
    """The members of a loader that are used here. A loader hands itself over for advice."""

    _config: Config
    _source: Source
    _run: Run

    def _variant(self, source: Any = None, **changes: Any) -> Loader: ...

    def stats(self) -> EchoStats:
        """Return counts and times."""

    def close(self) -> None:
        """End its threads."""


Step = Callable[[Any], object]
Pipeline = tuple[Loader, Step | None]


def measured_advice(
    pipeline: Callable[[], Pipeline],
    steps: int,
    epochs: int | None = None,
    worth: Worth | None = None,
) -> Advice:
    """Run a pipeline freely, then with its step function, for about `steps` batches each.

    Each run asks for its loader, and first takes some batches that do not count, until the source
    works as it does later on. Predictions hold in the middle of an epoch, while the pool is full. A
    source that is slower than the rest runs freely with one and with two workers too.
    """
    loader, _ = pipeline()
    config = loader._config
    if not isinstance(worth, Worth | None):
        raise ConfigError(f"advise() needs worth=pyecho.Worth(), got {type(worth).__name__}")
    known: tuple[float, ...] = ()
    if worth is not None and (estimate := worth.estimate()).identified:
        known = tuple(map(estimate.effective, range(1, MOST_FACTOR + 1)))
    with (worth or Worth())._aside():  # the step may observe
        began, used = time.perf_counter(), _processor_seconds()
        free = _free_run(loader, steps)
        took = time.perf_counter() - began
        facts = Facts(
            item_bytes=free.item_bytes,
            busy_cores=(_processor_seconds() - used) / took,
            cores=available_cores(),
            epochs=epochs,
            worth=known,
        )
        times = _full_run(*pipeline(), steps, free.upstream)
        if free.upstream > SLACK * times.cycle and not loader._source.in_memory:
            facts = _with_source(facts, pipeline()[0], free.upstream, steps, took)
    factor = config.most_uses
    if config.adaptive is not None:  # it follows R
        factor = min(factor, max(1.0, times.ratio))
    return advice_on(times, factor, steps, facts)


def _processor_seconds() -> float:
    """Return the processor time of this process, and of its children that have ended."""
    return sum(os.times()[:4])


def _with_source(facts: Facts, loader: Loader, upstream: float, steps: int, took: float) -> Facts:
    """Add what decides how a slow source can be made faster."""
    source = loader._source
    few, limit = max(FEWEST, steps // 2), WORKERS_SECONDS + 4 * took
    workers, unmeasured = {}, ""
    try:
        workers = times_of_workers(
            loader, upstream, lambda variant: _free_run(variant, few, limit).upstream
        )
    except EchoError as error:
        unmeasured = str(error)
    return replace(
        facts,
        items=None if source.one_shot else source.length(),
        memory_bytes=_free_memory(),
        workers=workers,
        unmeasured=unmeasured,
        workers_of="DataLoader" if _is_data_loader(source.object) else "loader",
    )


def _free_memory() -> int | None:
    """Return the bytes that the system could still give this process; None if it does not say."""
    available = found_in(Path("/proc/meminfo"), r"^MemAvailable:\s+(\d+)")
    if available is None:
        return None
    free = int(available) << 10
    group = Path("/sys/fs/cgroup")
    most, used = (found_in(group / f"memory.{name}", r"(\d+)") for name in ("max", "current"))
    if most is not None and used is not None:  # most is "max" without a limit
        free = min(free, max(0, int(most) - int(used)))
    return free


# ------------------------------------------------------------ runs


class FreeRun(NamedTuple):
    """The work of a source that nothing holds up."""

    upstream: float
    """Its seconds for the fresh examples of a batch."""
    item_bytes: float | None
    """Bytes of an item; None if a `collate_fn` hides them."""


def _free_run(given: Loader, steps: int, limit: float = threading.TIMEOUT_MAX) -> FreeRun:
    """Drop each use at once, and augment nothing. Raises `Closed` after `limit` seconds."""
    collate = None if given._config.collate_fn is None else len
    fresh, seconds, size = [], [], None
    batches = steps + steps // 4 + 1
    loader = _endless(
        given, batches, factor=1, augment=None, augment_example=None, collate_fn=collate
    )
    timer = threading.Timer(limit, loader.close)
    timer.daemon = True
    with closing(loader):
        timer.start()
        try:
            for batch in loader:
                seconds.append(time.perf_counter())
                fresh.append(loader.stats().fresh)
                if len(fresh) == 1 and collate is None:
                    size = size_of(batch)
                del batch
            stats = loader.stats()
        finally:
            timer.cancel()
    _refuse_few(len(fresh), batches)
    source, rows, capacity = loader._source, loader._config.batch_size or 1, loader._config.capacity
    if source.one_shot and stats.read - stats.fresh < capacity - rows:
        raise EchoError(  # what came last were the items of the pool, at the speed of memory
            f"the source ({type(source.object).__name__}) ended after {stats.read} items, and its "
            f"speed shows while the pool is full: a run of {batches} batches needs "
            f"{batches * rows + capacity}; pass a longer one, one that can be iterated again, or "
            "a smaller steps="
        )
    begin = len(seconds) // 5
    upstream = rows * stats.source_seconds / stats.read  # right if all of it was read before
    if fresh[-1] > fresh[begin]:
        upstream = rows * (seconds[-1] - seconds[begin]) / (fresh[-1] - fresh[begin])
    return FreeRun(upstream, None if size is None else size / rows)


def _full_run(given: Loader, step: Step | None, steps: int, upstream: float) -> Times:
    """Measure the other parts, where the source is the limit only if R is larger than 8."""
    received, busy, config = [], [], given._config
    # The feeder rests until the uses that the pool began with are spent.
    in_pool = math.ceil(FACTORS[-1] * config.capacity / (config.batch_size or 1))
    warm_up = steps // 4 + min(in_pool, 2 * steps)
    batches = warm_up + steps + 1
    loader = _endless(given, batches, factor=FACTORS[-1])
    with Trace() as recording, closing(loader):
        for batch in loader:
            received.append(time.perf_counter())
            if step is not None:
                step(batch)
            del batch
            busy.append(time.perf_counter() - received[-1])
    _refuse_few(len(busy), batches)
    cycles = [after - before for before, after in pairwise(received)]
    names = ("augment", "gather", "upload")
    augment, gather, upload = (Spans.of(recording.found, name) for name in names)
    begin = min(warm_up, len(cycles) // 2)  # the source may have ended sooner
    times = Times(
        upstream=upstream,
        downstream=0.0 if step is None else fmean(busy[begin:]),
        cycle=fmean(cycles[begin:]),
        augmentation=augment.seconds / max(1, augment.number),
        augment_workers=max(1, config.augment_workers),
        gather=gather.seconds * (config.batch_size or 1) / max(1, gather.items),
        gather_threads=max(1, gather.threads),
        upload=upload.seconds / len(busy),
        serial=loader._run.epochs.wiring.by_consumer and not loader._source.in_memory,
    )
    if not times.serial and SLACK * upstream / FACTORS[-1] < times.cycle:
        return times
    # The source was the limit, or its time is in the cycle: count only the other parts.
    parts = times.parts(math.inf)
    if not gather.threads:
        parts["consumer"] += parts.pop("gather")
    return replace(times, cycle=max(parts.values()))


class Spans(NamedTuple):
    """The spans of one name in a recording."""

    number: int
    seconds: float
    items: int
    threads: int
    """Gather threads among the threads that they are of."""

    @classmethod
    def of(cls, recording: dict[str, Any], name: str) -> Spans:
        """Sum up the spans with this name."""
        spans = [event for event in map(Event._make, recording["events"]) if event.name == name]
        seconds = 1e-9 * sum(span.nanoseconds for span in spans)
        names = [recording["threads"][thread] for thread in {span.thread for span in spans}]
        threads = names.count("pyecho-gather")
        return cls(len(spans), seconds, sum(span.items for span in spans), threads)


def _endless(given: Loader, batches: int, **changes: Any) -> Loader:
    """Return a loader that has so many batches, of as many passes as it takes."""
    return given._variant(epochs=None, steps_per_epoch=batches, **changes)


def _refuse_few(batches: int, asked: int) -> None:
    if batches < min(FEWEST, asked):
        raise EchoError(
            f"the source ended after {batches} batches, and advise() needs at least {FEWEST}; pass "
            "a longer one, or one that can be iterated again"
        )


# ------------------------------------------------------------ workers


def times_of_workers(
    given: Loader, upstream: float, run: Callable[[Loader], float]
) -> dict[int, float]:
    """Return the source's seconds for a batch with one and two workers.

    With w workers already: with w, which is known (`upstream`), and 2 w. `run` measures a loader,
    and raises `Closed` if that takes too long. Raises `EchoError` if the source fails in workers,
    or is too slow there.
    """
    source = given._source.object
    now = source.num_workers if _is_data_loader(source) else given._config.num_workers
    times = {now: upstream} if now else {}
    others = {*multiprocessing.active_children()}
    try:
        for count in (2 * now,) if now else (1, 2):
            times[count] = run(_with_workers(given, count))
    except BaseException as error:  # of the source in a worker, or one without items by index
        for worker in {*multiprocessing.active_children()} - others:
            worker.kill()  # it may hang
            worker.join()
        if not isinstance(error, Exception):
            raise
        why = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        if isinstance(error, Closed):
            why = f"{count} of them took too long"
        raise EchoError(why) from error
    return times


def _is_data_loader(source: Any) -> bool:
    """Return True for a `DataLoader` of PyTorch, not of a class derived from it."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and type(source) is data.DataLoader


def _with_workers(given: Loader, count: int) -> Loader:
    """Return a loader of the same source and options, with so many workers of pyecho or PyTorch.

    Raises `ConfigError` if the source has no items by index.
    """
    source = given._source.object
    if not _is_data_loader(source):
        return given._variant(source=source, num_workers=count)
    if source._dataset_kind != 0:
        raise ConfigError("a dataset without items by index shares out its work itself")
    loader = copy.copy(source)
    loader.num_workers, loader._iterator = count, None
    loader.prefetch_factor = loader.prefetch_factor or 2
    return given._variant(source=loader)
