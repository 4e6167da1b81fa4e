"""Measures a loader's pipeline in short runs: times of its parts, and what decides remedies."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pyecho._core import ConfigError, EchoError
from pyecho.config import available_cores
from pyecho.run.host import size_of
from pyecho.run.trace import Trace
from pyecho.tools.advise import probe
from pyecho.tools.advise.model import Advice, advice_on
from pyecho.tools.advise.remedies import Facts
from pyecho.tools.advise.times import FACTORS, SLACK, Times
from pyecho.worth import Worth
from pyecho.worth.estimate import MOST_FACTOR

if TYPE_CHECKING:
    from pyecho.loader import EchoLoader

FEWEST = 8
"""Batches without which nothing is measured."""

WORKERS_SECONDS = 20.0
"""Time that workers have to begin, beside four times that of the run without them."""

Step = Callable[[Any], object]
Pipeline = tuple["EchoLoader", Step | None]


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

    Raises
    ------
    ConfigError
        If `worth` is something else.
    EchoError
        If the source ends too soon, or while a trace is being recorded.
    """
    loader, _ = pipeline()
    config = loader._config
    if not isinstance(worth, Worth | None):
        raise ConfigError(f"advise() needs worth=pyecho.Worth(), got {type(worth).__name__}")
    known: tuple[float, ...] = ()
    if worth is not None and (estimate := worth.estimate()).identified:
        known = tuple(map(estimate.effective, range(1, MOST_FACTOR + 1)))
    with nullcontext() if worth is None else worth._aside():  # the step may observe
        began, used = time.perf_counter(), _processor_seconds()
        upstream, item_bytes = _free_run(loader, steps)
        took = time.perf_counter() - began
        facts = Facts(
            item_bytes=item_bytes,
            busy_cores=(_processor_seconds() - used) / took,
            cores=available_cores(),
            epochs=epochs,
            worth=known,
        )
        times = _full_run(*pipeline(), steps, upstream)
        if upstream > SLACK * times.cycle and not loader._source.in_memory:
            facts = _with_source(facts, pipeline()[0], upstream, steps, took)
    factor = config.most_uses
    if config.adaptive is not None:  # it follows R
        factor = min(factor, max(1.0, times.ratio))
    return advice_on(times, factor, steps, facts)


def _processor_seconds() -> float:
    """Return the processor time of this process, and of its children that have ended."""
    return sum(os.times()[:4])


def _with_source(
    facts: Facts, loader: EchoLoader, upstream: float, steps: int, took: float
) -> Facts:
    """Add what decides how a slow source can be made faster."""
    source = loader._source
    few, limit = max(FEWEST, steps // 2), WORKERS_SECONDS + 4 * took
    workers, unmeasured = probe.times_of_workers(
        loader, upstream, lambda variant: _free_run(variant, few, limit)[0]
    )
    return replace(
        facts,
        items=None if source.one_shot else source.length(),
        memory_bytes=probe.free_memory(),
        workers=workers,
        unmeasured=unmeasured,
        workers_of="DataLoader" if probe.is_data_loader(source.object) else "loader",
    )


def _free_run(
    given: EchoLoader, steps: int, limit: float = threading.TIMEOUT_MAX
) -> tuple[float, float | None]:
    """Return the source's seconds for the fresh examples of a batch, and the bytes of an item.

    Nothing holds up the source: each use is dropped at once, and nothing is augmented. Raises
    `Closed` after `limit` seconds.
    """
    collate = None if given._config.collate_fn is None else len
    fresh, seconds, size = [], [], None
    loader = given._variant(factor=1, augment=None, augment_example=None, collate_fn=collate)
    timer = threading.Timer(limit, loader.close)
    timer.daemon = True
    with closing(loader), ExitStack() as stack:
        stack.callback(timer.cancel)
        timer.start()
        rows = loader._config.batch_size or 1
        batches = steps + steps // 4 + 1
        for _, batch in _batches(loader, batches):
            seconds.append(time.perf_counter())
            fresh.append(loader.stats().fresh)
            if len(fresh) == 1 and collate is None:
                size = size_of(batch)
            del batch
        stats = loader.stats()
        source, capacity = loader._source, loader._config.capacity
    if source.one_shot and stats.read - stats.fresh < capacity - rows:
        raise EchoError(  # what came last were the items of the pool, at the speed of memory
            f"the source ({type(source.object).__name__}) ended after {stats.read} items, and its "
            f"speed shows while the pool is full: a run of {batches} batches needs "
            f"{batches * rows + capacity}; pass a longer one, one that can be iterated again, or "
            "a smaller steps="
        )
    begin = len(seconds) // 5
    item_bytes = None if size is None else size / rows
    if fresh[-1] == fresh[begin]:  # all of it was read before
        return rows * stats.source_seconds / stats.read, item_bytes
    return rows * (seconds[-1] - seconds[begin]) / (fresh[-1] - fresh[begin]), item_bytes


def _full_run(given: EchoLoader, step: Step | None, steps: int, upstream: float) -> Times:
    """Measure the other parts, where the source is the limit only if R is larger than 8."""
    cycles, busy = [], []
    with Trace() as recording, closing(given._variant(factor=FACTORS[-1])) as loader:
        config = loader._config
        # The feeder rests until the uses that the pool began with are spent.
        in_pool = math.ceil(config.most_uses * config.capacity / (config.batch_size or 1))
        warm_up = steps // 4 + min(in_pool, 2 * steps)
        last = None
        for number, batch in _batches(loader, warm_up + steps + 1):
            received = time.perf_counter()
            if step is not None:
                step(batch)
            del batch
            busy.append(time.perf_counter() - received)
            if number > 0 and last is not None:  # not the first of an epoch: the pool fills
                cycles.append(received - last)
            last = received
    augment_seconds, augments, _, _ = _sums(recording.found, "augment")
    gather_seconds, _, rows, gather_threads = _sums(recording.found, "gather")
    upload_seconds, *_ = _sums(recording.found, "upload")
    begin = min(warm_up, len(cycles) // 2)  # the source may have ended sooner
    times = Times(
        upstream=upstream,
        downstream=0.0 if step is None else fmean(busy[begin:]),
        cycle=fmean(cycles[begin:]),
        augmentation=augment_seconds / max(1, augments),
        augment_workers=max(1, config.augment_workers),
        gather=gather_seconds * (config.batch_size or 1) / max(1, rows),
        gather_threads=max(1, gather_threads),
        upload=upload_seconds / len(busy),
        serial=loader._run.engine.wiring.by_consumer and not loader._source.in_memory,
    )
    if not times.serial and SLACK * upstream / FACTORS[-1] < times.cycle:
        return times
    # The source was the limit, or its time is in the cycle: count only the other parts.
    parts = times.parts(math.inf)
    if not gather_threads:
        parts["consumer"] += parts.pop("gather")
    return replace(times, cycle=max(parts.values()))


def _sums(recording: dict[str, Any], name: str) -> tuple[float, int, int, int]:
    """Return of the spans with this name: seconds, how many, their items, threads of the gather."""
    spans = [event for event in recording["events"] if event[0] == name]
    seconds = 1e-9 * sum(end_ns - begin_ns for _, _, begin_ns, end_ns, _ in spans)
    names = recording["threads"]
    threads = {thread for _, thread, *_ in spans if names[thread] == "pyecho-gather"}
    return seconds, len(spans), sum(items for *_, items in spans), len(threads)


def _batches(loader: EchoLoader, most: int) -> Iterator[tuple[int, Any]]:
    """Yield so many batches, in as many epochs as it takes, each with its number in its epoch."""
    got = 0
    while True:
        before = got
        for number, batch in enumerate(loader):
            got += 1
            yield number, batch
            del batch
            if got == most:
                return
        if got == before or loader._source.one_shot:
            break
    if got < FEWEST:
        raise EchoError(
            f"the source ended after {got} batches, and advise() needs at least {FEWEST}; pass a "
            "longer one, or one that can be iterated again"
        )
