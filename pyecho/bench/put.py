"""The cost of `EchoBuffer.put` beyond its copy."""

from __future__ import annotations

from functools import partial

import numpy as np

from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, Sample, interleaved, seconds_of
from pyecho.buffer import EchoBuffer
from pyecho.items.nest import spec_of

EXAMPLES = {256: 20_000, 3072: 20_000, 150_528: 800}
"""The number of examples that are put, by the bytes of a row."""
LARGE_ROW_BYTES = 100_000


def measure(rounds: int, progress: Progress) -> list[Row]:
    """Measure put() for examples of two leaves, and the assignment of the same rows in NumPy."""
    return [_row(rounds, progress, row_bytes, count) for row_bytes, count in EXAMPLES.items()]


def _row(rounds: int, progress: Progress, row_bytes: int, count: int) -> Row:
    what = f"put of an example with {row_bytes:,} B and a label"
    contestants = {
        "put": partial(_put_seconds, row_bytes, count),
        "assign": partial(_assign_seconds, row_bytes, count),
    }
    if row_bytes < LARGE_ROW_BYTES:
        contestants["empty"] = partial(_assign_seconds, 0, count)
    seconds = interleaved(f"put, {row_bytes:,} B", rounds, contestants, progress)
    us = {name: sample.times(1e6 / count) for name, sample in seconds.items()}
    if row_bytes >= LARGE_ROW_BYTES:
        ratio = us["assign"] / us["put"]
        return Row(what, us["put"], "us", us["assign"], "NumPy's assignment", ratio)
    # NumPy's row assignment is a memcpy inside an interpreted loop. The cost of that loop, measured
    # with an empty row, is subtracted.
    copy = (us["assign"] - us["empty"]).at_least(Sample((0.0,) * rounds))
    return Row(f"{what}, over memcpy", us["put"] - copy, "us", target="<= 1.5 us")


def _put_seconds(row_bytes: int, count: int) -> float:
    example = {"x": np.ones(row_bytes, np.uint8), "y": 3}
    buffer = EchoBuffer(spec_of(example), batch_size=64, factor=1, shuffle_buffer=count)

    def put() -> None:
        for _ in range(count):
            buffer.put(example)

    seconds = seconds_of(put)
    buffer.stop()
    return seconds


def _assign_seconds(row_bytes: int, count: int) -> float:
    slots, row = np.zeros((count, row_bytes), np.uint8), np.ones(row_bytes, np.uint8)
    slots[:] = 1  # no page faults below

    def assign() -> None:
        for index in range(count):
            slots[index] = row

    return seconds_of(assign)
