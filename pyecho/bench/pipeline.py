"""Wall time of a whole pipeline against Eq. 1 of the paper.

Eq. 1 ignores the time to fill and drain the pipeline, and the hand-overs between threads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, Sample, turns
from pyecho.loader import EchoLoader

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


def measure(rounds: int, progress: Progress) -> list[Row]:
    """Run a source beside a consumer that is five times as fast."""
    pipelines = {
        f"{level}, e = {factor}": partial(_run, factor, options)
        for factor in FACTORS
        for level, options in LEVELS.items()
    }
    taken = turns("Eq. 1", rounds, pipelines, progress, warm_ups=0)
    return [
        Row(
            f"wall time, {name}",
            Sample(tuple(wall for wall, _ in found)),
            "s",
            Sample(tuple(bound for _, bound in found)),
            "Eq. 1",
            target="<= 1.02",
        )
        for name, found in taken.items()
    ]


def _run(factor: int, options: dict[str, Any]) -> tuple[float, float]:
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
        step = time.perf_counter()
        time.sleep(DOWNSTREAM_SECONDS)
        downstream += time.perf_counter() - step
    wall = time.perf_counter() - began
    return wall, max(loader.stats().source_seconds, downstream)
