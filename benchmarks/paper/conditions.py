"""The varied conditions, and the single runs under them. Each run has a key for the cache."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

Variant = Literal["batch", "after", "before"]
"""Where the echo stage stands: after batching, after augmentation, before augmentation."""

BUFFERED_BATCHES = 10
"""The shuffle buffer of every baseline, in batches."""

REVISION = 2
"""Part of every key. Increased when the training code changes the results of runs."""


@dataclass(frozen=True)
class Condition:
    """All parameters that the learning rate is retuned for."""

    workload: str
    variant: Variant
    factor: int
    batch_size: int
    shuffle_buffer: int
    """Of the echoing loader: examples, or batches with batch echoing."""

    def __str__(self) -> str:
        return (
            f"{self.workload}, {self.variant}, e = {self.factor}, batch {self.batch_size}, "
            f"buffer {self.shuffle_buffer}"
        )


@dataclass(frozen=True)
class Goal:
    """When a run ends: at the target, or when a budget of fresh examples is used up."""

    target: float | None
    budget: int
    """Fresh examples whose uses are trained on, at most."""


@dataclass(frozen=True)
class Job:
    """One training run."""

    condition: Condition
    goal: Goal
    rate: float
    seed: int
    timed: bool = False
    """True if the data come over a slow line and the run is timed."""

    def key(self, data: str) -> str:
        """Return the name of the result: a hash of everything that it depends on."""
        return hashlib.sha256(json.dumps(self.as_json(data), sort_keys=True).encode()).hexdigest()

    def as_json(self, data: str) -> dict[str, Any]:
        """Return the same in plain types; `data` is the hash of the data."""
        return {**asdict(self), "data": data, "revision": REVISION}
