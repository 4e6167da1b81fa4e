"""Samples, taken interleaved, so that a noisy machine favours no contestant."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Sample:
    """One number for each round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The lowest one."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The highest one."""
        return max(self.values)

    def __truediv__(self, other: Sample) -> Sample:
        """Return the ratios of the rounds."""
        return Sample(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))

    def times(self, factor: float) -> Sample:
        """Return all values times `factor`."""
        return Sample(tuple(value * factor for value in self.values))

    def at_most(self, other: Sample) -> Sample:
        """Return the lower value of each round."""
        return Sample(tuple(map(min, self.values, other.values)))

    def at_least(self, other: Sample) -> Sample:
        """Return the higher value of each round."""
        return Sample(tuple(map(max, self.values, other.values)))


class Progress(Protocol):
    """Shows the progress of a measurement."""

    def begin(self, name: str, steps: int) -> None:
        """Start a measurement of `steps` steps."""

    def advance(self, what: str) -> None:
        """Report that a step is done."""


def interleaved(
    rounds: int, contestants: Mapping[str, Callable[[], float]], progress: Progress
) -> dict[str, Sample]:
    """Measure every contestant once in each round, every other round in reverse order.

    An extra first round is not counted; it is for initialisation at the first use.
    """
    values: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(-1, rounds):
        names = list(contestants)
        for name in reversed(names) if number % 2 else names:
            measured = contestants[name]()
            if number >= 0:
                values[name].append(measured)
            progress.advance(name)
    return {name: Sample(tuple(measured)) for name, measured in values.items()}


def steps_of(rounds: int, contestants: int) -> int:
    """Return how often `interleaved` advances."""
    return (rounds + 1) * contestants
