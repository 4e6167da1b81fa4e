"""Wall time of a whole pipeline against Eq. 1 of the paper.

Eq. 1 holds for a pipeline that runs; what it takes to fill it and to drain it comes on top, here
some batches of 160.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, Sample
from pyecho.loader import EchoLoader

UPSTREAM_SECONDS = 5e-3
DOWNSTREAM_SECONDS = 1e-3
ROWS = 32
LEVELS: dict[str, dict[str, Any]] = {
    "batch echoing": {},
    "example echoing": {"batch_size": ROWS, "unbatch": True, "shuffle_buffer": 64},
}


def measure(
    rounds: int, progress: Progress, factors: Iterable[int] = (1, 5), batches: int = 160
) -> list[Row]:
    """Run a source that takes 5 ms and a consumer that takes 1 ms side by side."""
    chosen = list(factors)
    progress.begin("Eq. 1", rounds * len(chosen) * len(LEVELS))
    rows = []
    for factor in chosen:
        for level, options in LEVELS.items():
            walls, bounds = [], []
            for _ in range(rounds):
                wall, bound = _run(factor, options, batches)
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


def _run(factor: int, options: dict[str, Any], batches: int) -> tuple[float, float]:
    """Return the wall time, and the slower side's own time as it really was."""
    batch = np.zeros((ROWS, 3072), np.uint8)

    def source() -> Iterator[Any]:
        for _ in range(batches):
            time.sleep(UPSTREAM_SECONDS)
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
