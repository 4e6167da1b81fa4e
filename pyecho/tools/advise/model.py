"""Records of an advice: times of a pipeline's parts, facts beside them, and what follows.

A change is worth the learning per second with it, over that without it. A fresh example counts 1,
an example with e uses E(e): from `Worth` where there is one, else e up to PUBLISHED_USES, beyond
which nothing is published that holds for every task.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from pyecho.worth.estimate import MOST_FACTOR, PUBLISHED_USES, Best, least_best

FACTORS = (1, 2, 3, 4, 5, 8)
"""The factors that are predicted."""

SLACK = 1.05
"""Two times that differ by less count as equal."""

Kind = Literal[
    "threads", "augmentation", "gather", "upload", "memory", "workers", "echo", "step", "-"
]


@dataclass(frozen=True)
class Times:
    """The times of a pipeline's parts for one batch, in seconds. Parts work at the same time."""

    upstream: float
    """Time t_up of the source, running freely, for as many fresh examples as a batch has."""
    downstream: float
    """Time t_down of the consumer for a step; 0 if there is no step function."""
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


@dataclass(frozen=True)
class Facts:
    """Measurements of a pipeline beside its times. None: not known, or not to be had."""

    items: int | None = None
    """Items of a pass of this rank."""
    item_bytes: float | None = None
    """Bytes of an item, as it comes from the source."""
    memory_bytes: int | None = None
    """Memory that the system could still give."""
    busy_cores: float | None = None
    """Processors that the source kept busy while it ran freely."""
    cores: int = 1
    """Processors that this process may use."""
    workers: dict[int, float] = field(default_factory=dict)
    """Times of the source for a batch, by its number of workers."""
    unmeasured: str = ""
    """Why there are no times with workers."""
    workers_of: str = "loader"
    """The object that has the option `num_workers`, the loader or the DataLoader it reads."""
    epochs: int | None = None
    """Passes of the training; None stands for many."""
    worth: tuple[float, ...] = ()
    """By `Worth`, E(1), E(2), ...; empty if it is not known."""

    def learned(self, factor: float) -> float:
        """Return E(factor), the fresh examples that are worth as much as one with all its uses.

        At least 0.1, also where repeats undo what was learned, because gains are over it.
        """
        if not self.worth:
            return min(factor, PUBLISHED_USES)
        known = np.interp(factor, range(1, len(self.worth) + 1), self.worth)
        return max(0.1, float(known))

    def speed(self, times: Times, factor: float) -> float:
        """Return the learning per second, in fresh batches."""
        return self.learned(factor) / (factor * times.period(factor))

    def best(self, times: Times) -> Best:
        """Return the least factor with the most learning per second."""
        most = MOST_FACTOR if times.serial else times.ratio
        return least_best(lambda factor: self.speed(times, factor), most)


@dataclass(frozen=True)
class Remedy:
    """One change, or none."""

    kind: Kind
    """Part of the pipeline that is changed, "memory", "echo", or "-" for nothing."""
    action: str
    """A sentence without its end, for a person."""
    gain: float
    """Learning per second with it over that without it."""
    reason: str
    """The measurement that decides it."""
    factor: float = 1.0
    """The echo factor to use with it."""

    @property
    def effort(self) -> tuple[bool, int]:
        """Orders changes that gain as much, without repeats first, then the simpler ones."""
        return self.factor > SLACK, get_args(Kind).index(self.kind)

    def __str__(self) -> str:
        """Return a line for a person."""
        gain = f" ({self.gain:.1f} times the learning per second)" if self.gain > SLACK else ""
        return f"{self.action}{gain}: {self.reason}."


@dataclass(frozen=True)
class Prediction:
    """Speed to expect at one echo factor, once the pool is full."""

    factor: float
    steps_per_second: float
    idle_share: float | None
    """Share of the time in which the accelerator waits; None without a step function."""
    seconds: float
    """Time for `Advice.steps` steps."""

    @property
    def busy_share(self) -> float:
        """Share of the time in which the accelerator works; 1 without a step function."""
        return 1 - (self.idle_share or 0)


@dataclass(frozen=True)
class Advice:
    """Result of `EchoLoader.advise` and ``pyecho advise``; ``print`` shows it in short."""

    factor: float
    """The echo factor of the loader."""
    steps: int
    """The number of steps that `Prediction.seconds` is for."""
    times: Times
    full_factor: float | None
    """The least factor, R or 1, at which the accelerator is full; None if no factor fills it, or
    without a step function."""
    limit: str
    """Limit of the loader at its factor (source, augmentation, gather, upload or consumer)."""
    facts: Facts
    """Measurements beside the times."""
    remedies: tuple[Remedy, ...]
    """Changes, the one that gains most first; one that changes nothing if none gains."""
    predictions: tuple[Prediction, ...] = field(repr=False)
    """One for each of the factors 1, 2, 3, 4, 5, 8."""

    def __str__(self) -> str:
        """Return the times, the limit, and a line for each remedy."""
        times = self.times
        parts = {"t_up": times.upstream, "t_down": times.downstream}
        parts |= {"augment": times.augmentation, "gather": times.gather, "upload": times.upload}
        shown = ", ".join(
            f"{name} = {as_ms(value)}" for name, value in parts.items() if value > 5e-6
        )
        full = "Without a step function, this is what the loader can deliver at most."
        if self.full_factor is not None:
            full = f"The accelerator is full from e = {self.full_factor:.1f} on."
        elif times.downstream:
            full = "No factor fills the accelerator."
        lines = [
            f"A batch takes {shown}. {full}",
            f"At e = {self.factor:.3g} the limit is the {self.limit}.",
            *map(str, self.remedies),
        ]
        if self.facts.unmeasured:
            lines.append(f"Workers were not measured: {self.facts.unmeasured}.")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain JSON types."""
        return asdict(self)


def as_ms(seconds: float) -> str:
    """Return seconds as text, in milliseconds."""
    return f"{1e3 * seconds:.2f} ms"
