"""The cost of `EchoBuffer.put` beyond its copy."""

from __future__ import annotations

import time

import numpy as np

from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, Sample, interleaved, steps_of
from pyecho.buffer import EchoBuffer
from pyecho.items.nest import spec_of

EXAMPLES = {256: 20_000, 3072: 20_000, 150_528: 800}
"""So many are put, by bytes of a row."""
LARGE_ROW_BYTES = 100_000


def measure(rounds: int, progress: Progress) -> list[Row]:
    """Measure put() for examples of two leaves, and the assignment of the same rows in NumPy."""
    contestants = sum(2 if row_bytes >= LARGE_ROW_BYTES else 3 for row_bytes in EXAMPLES)
    progress.begin("put", steps_of(rounds, contestants))
    return [_row(rounds, progress, row_bytes, count) for row_bytes, count in EXAMPLES.items()]


def _row(rounds: int, progress: Progress, row_bytes: int, count: int) -> Row:
    large = row_bytes >= LARGE_ROW_BYTES
    contestants = {
        "put": lambda: _put_seconds(row_bytes, count),
        "assign": lambda: _assign_seconds(row_bytes, count),
    }
    if not large:
        contestants["empty"] = lambda: _assign_seconds(0, count)
    samples = interleaved(rounds, contestants, progress)
    us = {name: sample.times(1e6 / count) for name, sample in samples.items()}
    if large:
        return Row(
            f"put of an example with {row_bytes:,} B and a label",
            us["put"],
            "us",
            us["assign"],
            "NumPy's assignment",
            us["assign"] / us["put"],
        )
    # NumPy's row assignment is a memcpy inside an interpreted loop. The cost of that loop, measured
    # with an empty row, is subtracted.
    rounds_of = zip(us["put"].values, us["assign"].values, us["empty"].values, strict=True)
    extra = Sample(tuple(put - max(0.0, assign - empty) for put, assign, empty in rounds_of))
    return Row(
        f"put of an example with {row_bytes:,} B and a label, over memcpy",
        extra,
        "us",
        target="<= 1.5 us",
    )


def _put_seconds(row_bytes: int, count: int) -> float:
    example = {"x": np.ones(row_bytes, np.uint8), "y": 3}
    buffer = EchoBuffer(spec_of(example), batch_size=64, factor=1, capacity=count)
    began = time.perf_counter()
    for _ in range(count):
        buffer.put(example)
    seconds = time.perf_counter() - began
    buffer.stop()
    return seconds


def _assign_seconds(row_bytes: int, count: int) -> float:
    slots, row = np.zeros((count, row_bytes), np.uint8), np.ones(row_bytes, np.uint8)
    slots[:] = 1  # no page faults below
    began = time.perf_counter()
    for index in range(count):
        slots[index] = row
    return time.perf_counter() - began
