"""Samples, taken interleaved, so that a noisy machine favours no contestant; and their progress."""

from __future__ import annotations

import collections
import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
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

    def __truediv__(self, other: Sample) -> Sample:
        """Return the ratios of the rounds."""
        return Sample(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))

    def __add__(self, other: Sample) -> Sample:
        """Return the sums of the rounds."""
        return Sample(tuple(a + b for a, b in zip(self.values, other.values, strict=True)))

    def __sub__(self, other: Sample) -> Sample:
        """Return the differences of the rounds."""
        return Sample(tuple(a - b for a, b in zip(self.values, other.values, strict=True)))

    def times(self, factor: float) -> Sample:
        """Return all values times `factor`."""
        return Sample(tuple(value * factor for value in self.values))

    def at_most(self, other: Sample) -> Sample:
        """Return the lower value of each round."""
        return Sample(tuple(map(min, self.values, other.values)))

    def at_least(self, other: Sample) -> Sample:
        """Return the higher value of each round."""
        return Sample(tuple(map(max, self.values, other.values)))


class Progress:
    """The progress of a measurement. This class shows nothing."""

    def begin(self, name: str, steps: int) -> None:
        """Start a measurement of `steps` steps."""

    def advance(self, what: str) -> None:
        """Report that a step is done."""


def turns(
    what: str,
    rounds: int,
    contestants: Mapping[str, Callable[[], T]],
    progress: Progress,
    *,
    warm_ups: int = 1,
) -> dict[str, list[T]]:
    """Call every contestant once in each round, every other round in reverse order.

    Parameters
    ----------
    what
        The name that `progress` shows.
    rounds
        The number of rounds that count.
    contestants
        Functions that measure.
    progress
        Is told of each step.
    warm_ups
        The number of rounds before, which do not count, for initialisation at the first use.

    Returns
    -------
    dict
        The results of each contestant, round by round.
    """
    found: dict[str, list[T]] = {name: [] for name in contestants}
    progress.begin(what, (rounds + warm_ups) * len(contestants))
    for number in range(-warm_ups, rounds):
        names = list(contestants)
        for name in reversed(names) if number % 2 else names:
            result = contestants[name]()
            if number >= 0:
                found[name].append(result)
            progress.advance(name)
    return found


def interleaved(
    what: str, rounds: int, contestants: Mapping[str, Callable[[], float]], progress: Progress
) -> dict[str, Sample]:
    """Take `turns` of contestants that return a number each."""
    found = turns(what, rounds, contestants, progress)
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


class _Lines(Progress):
    """Prints the name and the duration of each measurement."""

    def __init__(self) -> None:
        self._began = 0.0
        self._left = 0

    def begin(self, name: str, steps: int) -> None:
        """Start a line."""
        self._began = time.monotonic()
        self._left = steps
        print(f"{name} ...", end=" ", file=sys.stderr, flush=True)

    def advance(self, what: str) -> None:
        """End the line with the last step."""
        self._left -= 1
        if self._left == 0:
            print(f"{time.monotonic() - self._began:.1f} s", file=sys.stderr, flush=True)


class _Bars(Progress):
    """A bar for each measurement."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._task: Any = None
        self._name = ""

    def begin(self, name: str, steps: int) -> None:
        """Start a bar."""
        self._name = name
        self._task = self._bars.add_task(name, total=steps)

    def advance(self, what: str) -> None:
        """Advance the bar."""
        self._bars.update(self._task, advance=1, description=f"{self._name}: {what}")


@contextlib.contextmanager
def shown() -> Iterator[Progress]:
    """Show progress on stderr: bars in a terminal if rich is installed, otherwise lines."""
    try:
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        is_terminal = console.is_terminal
    except ImportError:
        is_terminal = False
    if not is_terminal:
        yield _Lines()
        return
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=None),  # the rest of the line
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=console) as bars:
        yield _Bars(bars)
