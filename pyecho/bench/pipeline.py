"""Wall time of a whole pipeline against Eq. 1 of the paper.

Eq. 1 ignores the time to fill and drain the pipeline, and the hand-overs between threads.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, Sample
from pyecho.loader import EchoLoader

DOWNSTREAM_SECONDS = 1e-3
RATIO = 5
"""The source's time for a batch, as a multiple of the consumer's time."""
ROWS = 32
LEVELS: dict[str, dict[str, Any]] = {
    "batch echoing": {},
    "example echoing": {"batch_size": ROWS, "unbatch": True, "shuffle_buffer": 64},
}


def measure(
    rounds: int,
    progress: Progress,
    factors: Iterable[int] = (1, 5),
    batches: int = 400,
    downstream_seconds: float = DOWNSTREAM_SECONDS,
) -> list[Row]:
    """Run a source beside a consumer that is five times as fast."""
    chosen = list(factors)
    progress.begin("Eq. 1", rounds * len(chosen) * len(LEVELS))
    rows = []
    for factor in chosen:
        for level, options in LEVELS.items():
            walls, bounds = [], []
            for _ in range(rounds):
                wall, bound = _run(factor, options, batches, downstream_seconds)
                walls.append(wall)
                bounds.append(bound)
                progress.advance(f"e = {factor}, {level}")
            rows.append(
                Row(
                    f"wall time, {level}, e = {factor}",
                    Sample(tuple(walls)),
                    "s",
                    Sample(tuple(bounds)),
                    "Eq. 1",
                    target="<= 1.02",
                )
            )
    return rows


def _run(
    factor: int, options: dict[str, Any], batches: int, downstream_seconds: float
) -> tuple[float, float]:
    """Return the wall time, and the actual time of the slower side."""
    batch = np.zeros((ROWS, 3072), np.uint8)

    def source() -> Iterator[Any]:
        for _ in range(batches):
            time.sleep(RATIO * downstream_seconds)
            yield batch

    loader = EchoLoader(source(), factor, **options)
    began = time.perf_counter()
    downstream = 0.0
    for _ in loader:
        step = time.perf_counter()
        time.sleep(downstream_seconds)
        downstream += time.perf_counter() - step
    wall = time.perf_counter() - began
    return wall, max(loader.stats().source_seconds, downstream)
