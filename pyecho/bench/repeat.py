"""The cost of a repeat in batch echoing, against a generator that yields the object again."""

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, interleaved, steps_of
from pyecho.loader import EchoLoader

USES = 1_000_000
FREE_USES = 160_000
SHUFFLED_AMONG = 16


def measure(rounds: int, progress: Progress) -> list[Row]:
    """Measure repeats of one item, and of several shuffled items."""
    progress.begin("one repeat", steps_of(rounds, 3))
    item = object()

    def generator() -> Iterator[object]:
        for _ in range(USES):
            yield item

    def loader(distinct: int) -> EchoLoader:
        items = [object() for _ in range(distinct)]
        return EchoLoader(items, USES // distinct, shuffle_buffer=distinct)

    samples = interleaved(
        rounds,
        {
            "generator": lambda: _seconds(generator()),
            "loader": lambda: _seconds(loader(1)),
            "shuffled": lambda: _seconds(loader(SHUFFLED_AMONG)),
        },
        progress,
    )
    per_use = {name: sample.times(1e9 / USES) for name, sample in samples.items()}
    return [
        Row(
            "one repeat",
            per_use["loader"],
            "ns",
            per_use["generator"],
            "bare generator",
            target="<= 0.5",
        ),
        Row(
            f"one repeat, shuffled among {SHUFFLED_AMONG}",
            per_use["shuffled"],
            "ns",
            per_use["generator"],
            "bare generator",
        ),
    ]


def measure_factors(rounds: int, progress: Progress) -> list[Row]:
    """Measure the feeder's hand-over of each item, with a source that costs nothing."""
    factors = (1, 2, 4, 8, 16)
    progress.begin("a use, by echo factor", steps_of(rounds, 2 * len(factors)))
    item = np.zeros(16)  # a size that is known, so that the feeder hands items over in groups

    def generator(factor: int) -> Iterator[object]:
        for _ in range(FREE_USES // factor):
            for _ in range(factor):
                yield item

    def loader(factor: int) -> Iterable[object]:
        return EchoLoader(itertools.repeat(item, FREE_USES // factor), factor)

    def timed(uses: Callable[[int], Iterable[object]], factor: int) -> float:
        return _seconds(uses(factor))

    contestants: dict[str, Callable[[], float]] = {}
    for factor in factors:
        contestants[f"generator {factor}"] = partial(timed, generator, factor)
        contestants[f"loader {factor}"] = partial(timed, loader, factor)
    samples = interleaved(rounds, contestants, progress)
    per_use = {name: sample.times(1e9 / FREE_USES) for name, sample in samples.items()}
    return [
        Row(
            f"one use, e = {factor}, of items that cost nothing",
            per_use[f"loader {factor}"],
            "ns",
            per_use[f"generator {factor}"],
            "bare generator",
        )
        for factor in factors
    ]


def measure_capacities(rounds: int, progress: Progress) -> list[Row]:
    """Measure draws from full pools of increasing size, against draws from a pool of 100."""
    distincts = (100, 1000, 10_000, 100_000, 1_000_000)
    progress.begin("one repeat, by capacity", steps_of(rounds, len(distincts)))

    def drained(distinct: int) -> Callable[[], float]:
        uses = max(10, USES // distinct)
        items = [object() for _ in range(distinct)]
        loader = EchoLoader(items, uses, shuffle_buffer=distinct)

        def measure() -> float:
            iterator = iter(loader)
            next(iterator)  # the pool is full now
            return _seconds(iterator) / (uses * distinct)

        return measure

    samples = interleaved(
        rounds, {f"{distinct:,}": drained(distinct) for distinct in distincts}, progress
    )
    (few, least), *others = ((name, sample.times(1e9)) for name, sample in samples.items())
    return [
        Row(f"one repeat, shuffled among {name}", sample, "ns", least, f"among {few}")
        for name, sample in others
    ]


def _seconds(items: Iterable[object]) -> float:
    iterator = iter(items)
    began = time.perf_counter()
    collections.deque(iterator, maxlen=0)
    return time.perf_counter() - began
