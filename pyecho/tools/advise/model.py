"""Predicts a pipeline at each echo factor: Eq. 1 of the paper on measured times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

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
class Prediction:
    """Speed to expect at one echo factor, once the pool is full."""

    factor: float
    steps_per_second: float
    idle_share: float | None
    """Share of the time in which the accelerator waits; None without a step function."""
    seconds: float
    """Time for `Advice.steps` steps."""


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
    """Limit of the loader at its factor: source, augmentation, gather, upload or consumer."""
    change: str
    """Remedy for this limit."""
    predictions: tuple[Prediction, ...] = field(repr=False)
    """One for each of the factors 1, 2, 3, 4, 5, 8."""

    def __str__(self) -> str:
        """Return the times, the limit and the remedy, in three lines."""
        times = self.times
        parts = {"t_up": times.upstream, "t_down": times.downstream}
        parts |= {"augment": times.augmentation, "gather": times.gather, "upload": times.upload}
        shown = ", ".join(
            f"{name} = {1e3 * value:.2f} ms" for name, value in parts.items() if value > 5e-6
        )
        if self.full_factor is not None:
            full = f"The accelerator is full from e = {self.full_factor:.1f} on."
        elif times.downstream:
            full = "No factor fills the accelerator."
        else:
            full = "Without a step function, this is what the loader can deliver at most."
        return (
            f"A batch takes {shown}. {full}\n"
            f"At e = {self.factor:g} the limit is the {self.limit}.\n"
            f"{self.change}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain JSON types."""
        return asdict(self)


def advice_on(times: Times, factor: float, steps: int) -> Advice:
    """Return the advice that follows from these times for a loader with this factor."""
    parts = times.parts(factor)
    limit = max(parts, key=parts.__getitem__)
    never = times.serial or not 0 < times.cycle <= SLACK * times.downstream
    full = None if never else max(1.0, times.upstream / times.cycle)
    return Advice(
        factor=factor,
        steps=steps,
        times=times,
        full_factor=full,
        limit=limit,
        change=_change(times, factor, limit, parts),
        predictions=tuple(_prediction(times, each, steps) for each in FACTORS),
    )


def _prediction(times: Times, factor: float, steps: int) -> Prediction:
    period = times.period(factor)
    idle = max(0.0, 1 - times.downstream / period) if times.downstream else None
    return Prediction(factor, 1 / period, idle, steps * period)


def _change(times: Times, factor: float, limit: str, parts: Mapping[str, float]) -> str:
    if limit == "source":
        if times.serial:
            return (
                "The consumer's thread reads the source. Leave out threads=0, so that it is read "
                "meanwhile."
            )
        if times.upstream / factor <= SLACK * times.cycle:
            return "The factor fits: the source is about as fast as the rest."
        if not times.downstream:
            return (
                "Pass a step function, for the factor that fills the accelerator; or make the "
                "source faster, for example with more workers of its own."
            )
        e = times.upstream / times.cycle
        return (
            f"Raise factor to {e:.1f} for {e / factor:.1f} times the steps per second; or make the "
            "source faster, for example with more workers of its own."
        )
    speedup = parts[limit] / max(value for name, value in parts.items() if name != limit)
    most = f"up to {speedup:.1f} times the steps per second"
    if limit == "augmentation":
        return (
            f"Use augment_workers={math.ceil(times.augment_workers * speedup)}: {most}, if the "
            "augmentation releases the GIL and there are cores for it."
        )
    if limit == "gather":
        return f"Use more threads than {times.gather_threads}: {most}."
    if limit == "upload":
        return (
            "Send fewer bytes: device_dtype= converts on the device, and echo_on='device' sends "
            f"each example once; {most}."
        )
    e = max(1.0, times.upstream / times.cycle)
    if factor > SLACK * e:
        return f"factor={e:.1f} takes as many steps per second, with more fresh examples."
    return "The accelerator is full: only a faster step takes more steps per second."
