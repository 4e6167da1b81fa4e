"""What `EchoBuffer.put` costs beside the copy that it makes."""

from __future__ import annotations

import time

import numpy as np

from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, Sample, interleaved, steps_of
from pyecho.buffer import EchoBuffer
from pyecho.spec import spec_of

EXAMPLES = 20_000
ROW_BYTES = (256, 3072)


def measure(rounds: int, progress: Progress) -> list[Row]:
    """Put examples of two leaves, and assign the same rows in NumPy."""
    progress.begin("put", steps_of(rounds, 3 * len(ROW_BYTES)))
    return [_row(rounds, progress, row_bytes) for row_bytes in ROW_BYTES]


def _row(rounds: int, progress: Progress, row_bytes: int) -> Row:
    samples = interleaved(
        rounds,
        {
            "put": lambda: _put_seconds(row_bytes),
            "assign": lambda: _assign_seconds(row_bytes),
            "empty": lambda: _assign_seconds(0),
        },
        progress,
    )
    us = {name: sample.times(1e6 / EXAMPLES) for name, sample in samples.items()}
    # NumPy's row assignment is a memcpy with the interpreter's loop around it; what that loop
    # costs with an empty row is no copy.
    rounds_of = zip(us["put"].values, us["assign"].values, us["empty"].values, strict=True)
    extra = Sample(tuple(put - max(0.0, assign - empty) for put, assign, empty in rounds_of))
    return Row(
        f"put of an example with {row_bytes:,} B and a label, over memcpy",
        extra,
        "us",
        target="<= 1.5 us",
    )


def _put_seconds(row_bytes: int) -> float:
    example = {"x": np.zeros(row_bytes, np.uint8), "y": 3}
    buffer = EchoBuffer(spec_of(example), batch_size=64, factor=1, capacity=EXAMPLES)
    began = time.perf_counter()
    for _ in range(EXAMPLES):
        buffer.put(example)
    seconds = time.perf_counter() - began
    buffer.stop()
    return seconds


def _assign_seconds(row_bytes: int) -> float:
    slots, row = np.zeros((EXAMPLES, row_bytes), np.uint8), np.zeros(row_bytes, np.uint8)
    slots[:] = 1  # no page faults below
    began = time.perf_counter()
    for index in range(EXAMPLES):
        slots[index] = row
    return time.perf_counter() - began
