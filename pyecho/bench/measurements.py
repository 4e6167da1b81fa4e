"""Repeats, `put`, hand-overs and whole pipelines, each beside its limit; `gather` has the rows."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from pyecho.bench import _races
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample, interleaved, seconds_of, seconds_to_drain, turns
from pyecho.buffer import EchoBuffer
from pyecho.items.nest import spec_of
from pyecho.loader import EchoLoader

USES = 1_000_000
FRESH = 160_000
SHUFFLED_AMONG = 16

EXAMPLES = {256: 20_000, 3072: 20_000, 150_528: 800}
"""The number of examples that are put, by the bytes of a row."""
LARGE_ROW_BYTES = 100_000

HAND_OVERS = 200
PAUSE_NS = 1_000_000
STAGES = {"queue": "hand-over of an item", "buffer": "hand-over of a batch of one example"}

BATCHES = 400
DOWNSTREAM_SECONDS = 1e-3
RATIO = 5
"""The source's time for a batch, as a multiple of the consumer's time."""
FACTORS = (1, 5)
ROWS = 32
LEVELS: dict[str, dict[str, Any]] = {
    "batch echoing": {},
    "example echoing": {"batch_size": ROWS, "unbatch": True, "shuffle_buffer": 64},
}


def repeat(rounds: int) -> list[Row]:
    """Measure repeats of one item and of several shuffled ones, and fresh items that cost nothing.

    The limits are bare generators.
    """
    item = object()
    array = np.zeros(16)  # a size that is known, so that the feeder hands items over in groups

    def repeats() -> Iterator[object]:
        for _ in range(USES):
            yield item

    def source() -> Iterator[object]:
        yield from itertools.repeat(array, FRESH)

    def loader(distinct: int) -> EchoLoader:
        items = [object() for _ in range(distinct)]
        return EchoLoader(items, USES // distinct, shuffle_buffer=distinct)

    contestants = {
        "bare": lambda: seconds_to_drain(repeats()),
        "one": lambda: seconds_to_drain(loader(1)),
        "shuffled": lambda: seconds_to_drain(loader(SHUFFLED_AMONG)),
        "bare fresh": lambda: seconds_to_drain(source()),
        "fresh": lambda: seconds_to_drain(EchoLoader(source(), 1)),
    }
    ns = {
        name: sample.times(1e9 / (FRESH if "fresh" in name else USES))
        for name, sample in interleaved("one repeat", rounds, contestants).items()
    }
    shuffled = f"one repeat, shuffled among {SHUFFLED_AMONG}"
    return [
        Row("one repeat", ns["one"], "ns", ns["bare"], "bare generator", target="<= 0.5"),
        Row(shuffled, ns["shuffled"], "ns", ns["bare"], "bare generator"),
        Row("a fresh item that costs nothing", ns["fresh"], "ns", ns["bare fresh"], "its source"),
    ]


def put(rounds: int) -> list[Row]:
    """Measure put() of examples of two leaves, and the assignment of the same rows in NumPy."""
    return [_put(rounds, row_bytes, count) for row_bytes, count in EXAMPLES.items()]


def _put(rounds: int, row_bytes: int, count: int) -> Row:
    what = f"put of an example with {row_bytes:,} B and a label"
    contestants = {
        "put": partial(_put_seconds, row_bytes, count),
        "assign": partial(_assign_seconds, row_bytes, count),
        "empty": partial(_assign_seconds, 0, count),
    }
    seconds = interleaved(f"put, {row_bytes:,} B", rounds, contestants)
    us = {name: sample.times(1e6 / count) for name, sample in seconds.items()}
    if row_bytes >= LARGE_ROW_BYTES:
        ratio = us["assign"] / us["put"]
        return Row(what, us["put"], "us", us["assign"], "NumPy's assignment", ratio)
    # NumPy's row assignment is a memcpy inside an interpreted loop. The cost of that loop, measured
    # with an empty row, is subtracted.
    copy = (us["assign"] - us["empty"]).combined(max, Sample((0.0,) * rounds))
    return Row(f"{what}, over memcpy", us["put"] - copy, "us", target="<= 1.5 us")


def _put_seconds(row_bytes: int, count: int) -> float:
    example = {"x": np.ones(row_bytes, np.uint8), "y": 3}
    buffer = EchoBuffer(spec_of(example), batch_size=64, factor=1, shuffle_buffer=count)

    def fill() -> None:
        for _ in range(count):
            buffer.put(example)

    seconds = seconds_of(fill)
    buffer.stop()
    return seconds


def _assign_seconds(row_bytes: int, count: int) -> float:
    slots, row = np.zeros((count, row_bytes), np.uint8), np.ones(row_bytes, np.uint8)
    slots[:] = 1  # no page faults below

    def assign() -> None:
        for index in range(count):
            slots[index] = row

    return seconds_of(assign)


def hand_over(rounds: int) -> list[Row]:
    """Hand over single items to a sleeper; return median and 99th percentile of each round."""
    stages = {
        stage: partial(_races.hand_over_ns, stage, HAND_OVERS, PAUSE_NS)
        for stage in ("condition", *STAGES)
    }
    taken = turns("hand-over", rounds, stages, warm_ups=0)

    def quantile(stage: str, percent: int) -> Sample:
        return Sample(tuple(float(np.percentile(ns, percent)) / 1e3 for ns in taken[stage]))

    rows = []
    for stage, percent in itertools.product(STAGES, (50, 99)):
        what, limit = f"{STAGES[stage]}, p{percent}", quantile("condition", percent)
        rows.append(Row(what, quantile(stage, percent), "us", limit, "condition variable"))
    return rows


def pipeline(rounds: int) -> list[Row]:
    """Run a source beside a consumer that is five times as fast.

    Eq. 1 ignores the time to fill and drain the pipeline, and the hand-overs between threads.
    """
    pipelines = {
        f"{level}, e = {factor}": partial(_pipeline_seconds, factor, options)
        for factor in FACTORS
        for level, options in LEVELS.items()
    }
    rows = []
    for name, found in turns("Eq. 1", rounds, pipelines, warm_ups=0).items():
        wall, bound = (Sample(tuple(values)) for values in zip(*found, strict=True))
        rows.append(Row(f"wall time, {name}", wall, "s", bound, "Eq. 1", target="<= 1.02"))
    return rows


def _pipeline_seconds(factor: int, options: dict[str, Any]) -> tuple[float, float]:
    """Return the wall time, and the actual time of the slower side."""
    batch = np.zeros((ROWS, 3072), np.uint8)

    def source() -> Iterator[Any]:
        for _ in range(BATCHES):
            time.sleep(RATIO * DOWNSTREAM_SECONDS)
            yield batch

    loader = EchoLoader(source(), factor, **options)
    began = time.perf_counter()
    downstream = 0.0
    for _ in loader:
        downstream += seconds_of(lambda: time.sleep(DOWNSTREAM_SECONDS))
    wall = time.perf_counter() - began
    return wall, max(loader.stats().source_seconds, downstream)
