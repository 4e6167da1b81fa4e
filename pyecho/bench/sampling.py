"""Samples, taken interleaved, so that a noisy machine favours no contestant."""

from __future__ import annotations

import collections
import operator
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partialmethod
from typing import Any, TypeVar

T = TypeVar("T")


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

    def combined(self, function: Callable[[float, float], float], other: Sample) -> Sample:
        """Return what a function, such as `min`, returns for both values of each round."""
        pairs = zip(self.values, other.values, strict=True)
        return Sample(tuple(function(mine, theirs) for mine, theirs in pairs))

    __truediv__ = partialmethod(combined, operator.truediv)
    __add__ = partialmethod(combined, operator.add)
    __sub__ = partialmethod(combined, operator.sub)

    def as_json(self) -> dict[str, Any]:
        """Return everything in plain types."""
        values = list(self.values)
        return {"median": self.median, "min": self.low, "max": self.high, "values": values}

    def times(self, factor: float) -> Sample:
        """Return all values times `factor`."""
        return Sample(tuple(value * factor for value in self.values))


def turns(
    what: str, rounds: int, contestants: Mapping[str, Callable[[], T]], *, warm_ups: int = 1
) -> dict[str, list[T]]:
    """Call every contestant once in each round, every other round in reverse order.

    Returns the results of each contestant, round by round. Before come rounds to warm up, which do
    not count. A line on stderr tells of `what` and its duration.
    """
    print(f"{what} ...", end=" ", file=sys.stderr, flush=True)
    began = time.monotonic()
    found: dict[str, list[T]] = {name: [] for name in contestants}
    for number in range(-warm_ups, rounds):
        names = list(contestants)
        for name in reversed(names) if number % 2 else names:
            result = contestants[name]()
            if number >= 0:
                found[name].append(result)
    print(f"{time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    return found


def interleaved(
    what: str, rounds: int, contestants: Mapping[str, Callable[[], float]]
) -> dict[str, Sample]:
    """Take `turns` of contestants that return a number each."""
    found = turns(what, rounds, contestants)
    return {name: Sample(tuple(values)) for name, values in found.items()}


def seconds_of(call: Callable[[], object]) -> float:
    """Return the time of a call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def seconds_to_drain(items: Iterable[object]) -> float:
    """Return the time in which all items are taken and dropped, after ``iter()``."""
    iterator = iter(items)
    return seconds_of(lambda: collections.deque(iterator, maxlen=0))
