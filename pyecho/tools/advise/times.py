"""Times of a pipeline's parts, and what Eq. 1 of the paper makes of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

FACTORS = (1, 2, 3, 4, 5, 8)
"""The factors that are predicted."""

SLACK = 1.05
"""Two times that differ by less count as equal."""


@dataclass(frozen=True)
class Times:
    """The times of a pipeline's parts for one batch, in seconds. Parts work at the same time."""

    upstream: float
    """t_up: time of the source, running freely, for as many fresh examples as a batch has."""
    downstream: float
    """t_down: time of the consumer for a step; 0 if there is no step function."""
    cycle: float
    """The least time from one batch to the next when the source is not the limit."""
    augmentation: float = 0.0
    """Time of one thread to augment and collate."""
    augment_workers: int = 1
    gather: float = 0.0
    """Time of one thread to copy the rows."""
    gather_threads: int = 1
    upload: float = 0.0
    """Time of the thread that uploads."""
    serial: bool = False
    """True if the consumer's thread reads the source, so that their times add up."""

    @property
    def ratio(self) -> float:
        """R, the factor from which on the source is not the limit; infinite if nothing else is."""
        return self.upstream / self.cycle if self.cycle else math.inf

    def period(self, factor: float) -> float:
        """Return the time from one batch to the next at a factor: Eq. 1."""
        upstream = self.upstream / factor
        return upstream + self.cycle if self.serial else max(upstream, self.cycle)

    def parts(self, factor: float) -> dict[str, float]:
        """Return the share of each part in the period, were it alone."""
        return {
            "consumer": self.downstream,
            "source": self.upstream / factor,
            "augmentation": self.augmentation / self.augment_workers,
            "gather": self.gather / self.gather_threads,
            "upload": self.upload,
        }
