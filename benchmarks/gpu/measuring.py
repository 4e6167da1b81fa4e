"""Samples, and how they are taken: warmed up, interleaved, with the device idle at both ends."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

WARM_UP_BATCHES = 12
"""More than any contestant makes ahead, so that no stock is counted."""


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
    """Shows how far a measurement is."""

    def begin(self, name: str, steps: int) -> None:
        """Start a measurement of so many steps."""

    def advance(self, what: str) -> None:
        """Say that a step is done."""


def new_stream(device: torch.device) -> Any:
    """Return a stream; PyTorch's is untyped."""
    make: Any = torch.cuda.Stream
    return make(device)


def new_event() -> Any:
    """Return an event that notes the time; PyTorch's is untyped."""
    make: Any = torch.cuda.Event
    return make(enable_timing=True)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    torch.cuda.synchronize(device)


def seconds(device: torch.device, work: Callable[[], Any]) -> float:
    """Return how long `work` takes, with what it leaves to the device."""
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began


def seconds_of_batches(device: torch.device, batches: Iterator[Any], count: int) -> float:
    """Return how long it takes to get `count` batches from an endless iterator, dropping each."""
    for _ in range(WARM_UP_BATCHES):
        next(batches)

    def take() -> None:
        for _ in range(count):
            next(batches)

    return seconds(device, take)


def interleaved(
    rounds: int, contestants: Mapping[str, Callable[[], float]], progress: Progress
) -> dict[str, Sample]:
    """Measure every contestant once in each round, every other round in reverse.

    One more round comes first and is not counted: whatever is made at the first use is there then.
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
