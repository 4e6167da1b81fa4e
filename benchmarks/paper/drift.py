"""A source whose speed drifts, in simulated time.

Training is real, and so is pyecho's plan, which decides on every use; only the clock is simulated.
A step takes `STEP_SECONDS`, and the next example comes when the source has made it and found room.
So a run gives the same number of seconds on every machine, however busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import pyecho
from pyecho import _core
from pyecho.config import Config
from pyecho.fitted import Fitted, Wiring

STEP_SECONDS = 0.5
"""t_down of a batch."""
LEG_SECONDS = 60.0
"""R goes from the lowest to the highest in so much time, and then back."""
RATIOS = (1.0, 8.0)


def ratio_at(seconds: float) -> float:
    """Return R: it changes by the same factor in each second."""
    legs = seconds / LEG_SECONDS % 2
    low, high = RATIOS
    return float(low * (high / low) ** min(legs, 2 - legs))


class DriftingLoader:
    """Takes the place of `paper.training.Loaders`."""

    def __init__(self, workload: Any, condition: Any, seed: int, source: None = None) -> None:
        factor, size = condition.factor, condition.batch_size
        config = Config(
            factor=pyecho.Adaptive(factor) if condition.variant == "adaptive" else factor,
            batch_size=size,
            shuffle_buffer=condition.shuffle_buffer,
            seed=seed,
        )
        self._plan = _core.SlotPlan(Fitted(config, config.capacity, config.prefetch, Wiring()))
        self._workload = workload
        self._seed = seed
        self._example_seconds = STEP_SECONDS / size  # at R = 1
        self._order = workload.orders(seed)
        self._read: list[int] = []
        self._now = 0.0  # of the consumer
        self._arrival = self._example_seconds * ratio_at(0)  # of the next example
        self.waited = 0.0
        """Seconds without a batch."""

    @property
    def last(self) -> Iterator[dict[str, torch.Tensor]]:
        """The batches, without end."""
        rng = np.random.default_rng([self._seed, 2])
        arrays = self._workload.arrays.items()
        while True:
            self._put()
            if self._plan.advance():
                _, numbers, _ = self._plan.take()
                chosen = [self._read[number] for number in numbers]
                batch = {name: torch.from_numpy(array[chosen]) for name, array in arrays}
                yield self._workload.augment(batch, rng)
                self._now += STEP_SECONDS
            else:
                self.waited += max(0.0, self._arrival - self._now)
                self._now = max(self._now, self._arrival)

    def _put(self) -> None:
        """Put what has arrived; a source that finds no room waits, and then makes the next."""
        while self._arrival <= self._now:
            try:
                self._plan.offer(1)
            except ValueError:
                self._arrival = self._now  # or later: it is tried again after the next batch
                return
            self._read.append(next(self._order))
            self._arrival += self._example_seconds * ratio_at(self._arrival)

    @property
    def fresh(self) -> int:
        """Examples read from the source."""
        return len(self._read)

    def clock(self) -> float:
        """Return the simulated time."""
        return self._now + STEP_SECONDS  # that of the step under way included

    def close(self) -> None:
        """Nothing is open."""
