"""The varied conditions, and the single runs under them. Each run has a key for the cache."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

Variant = Literal["batch", "after", "before", "adaptive"]
"""Where the echo stage stands: after batching, after augmentation, before augmentation; the last
one with a factor that adapts itself, up to that of the condition."""

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
    drifts: bool = False
    """True if the speed of the source drifts, in simulated time."""

    def __str__(self) -> str:
        return (
            f"{self.workload}, {self.variant}, e = {self.factor}, batch {self.batch_size}, "
            f"buffer {self.shuffle_buffer}{', drifting' if self.drifts else ''}"
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
        plain = asdict(self)
        if not self.condition.drifts:
            del plain["condition"]["drifts"]
        return {**plain, "data": data, "revision": REVISION}
