"""The time of an item to a sleeping consumer, against a bare condition variable."""

from __future__ import annotations

from functools import partial

import numpy as np

from pyecho.bench import _races
from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, Sample, turns

COUNT = 200
PAUSE_NS = 1_000_000
STAGES = {"queue": "hand-over of an item", "buffer": "hand-over of a batch of one example"}


def measure(rounds: int, progress: Progress) -> list[Row]:
    """Hand over single items to a sleeper; return median and 99th percentile of each round."""
    stages = {
        stage: partial(_races.hand_over_ns, stage, COUNT, PAUSE_NS)
        for stage in ("condition", *STAGES)
    }
    taken = turns("hand-over", rounds, stages, progress, warm_ups=0)

    def quantile(stage: str, percent: int) -> Sample:
        return Sample(tuple(float(np.percentile(ns, percent)) / 1e3 for ns in taken[stage]))

    return [
        Row(
            f"{what}, p{percent}",
            quantile(stage, percent),
            "us",
            quantile("condition", percent),
            "condition variable",
        )
        for stage, what in STAGES.items()
        for percent in (50, 99)
    ]
