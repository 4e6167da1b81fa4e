"""The time of an item to a sleeping consumer, against a bare condition variable."""

from __future__ import annotations

import numpy as np

from pyecho import _core
from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, Sample

COUNT = 200
PAUSE_NS = 1_000_000
STAGES = {"queue": "hand-over of an item", "buffer": "hand-over of a batch of one example"}


def measure(rounds: int, progress: Progress) -> list[Row]:
    """Hand over single items to a sleeper; return median and 99th percentile of each round."""
    stages = ("condition", *STAGES)
    progress.begin("hand-over", rounds * len(stages))
    quantiles: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for stage in stages:
            taken = np.array(_core.hand_over_ns(stage, COUNT, PAUSE_NS)) / 1e3
            for percent in (50, 99):
                value = float(np.percentile(taken, percent))
                quantiles.setdefault((stage, percent), []).append(value)
            progress.advance(stage)
    samples = {key: Sample(tuple(values)) for key, values in quantiles.items()}
    return [
        Row(
            f"{what}, p{percent}",
            samples[stage, percent],
            "us",
            samples["condition", percent],
            "condition variable",
        )
        for stage, what in STAGES.items()
        for percent in (50, 99)
    ]
