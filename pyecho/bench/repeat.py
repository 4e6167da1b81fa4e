"""The cost of a repeat and of a fresh item in batch echoing, against bare generators."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, interleaved, seconds_to_drain
from pyecho.loader import EchoLoader

USES = 1_000_000
FRESH = 160_000
SHUFFLED_AMONG = 16


def measure(rounds: int, progress: Progress) -> list[Row]:
    """Measure repeats of one item and of several shuffled items, and items that cost nothing."""
    item = object()
    array = np.zeros(16)  # a size that is known, so that the feeder hands items over in groups

    def repeats() -> Iterator[object]:
        for _ in range(USES):
            yield item

    def source() -> Iterator[object]:
        yield from itertools.repeat(array, FRESH)

    def loader(distinct: int) -> EchoLoader:
        items = [object() for _ in range(distinct)]
        return EchoLoader(items, USES // distinct, shuffle_buffer=distinct)

    seconds = interleaved(
        "one repeat",
        rounds,
        {
            "bare": lambda: seconds_to_drain(repeats()),
            "one": lambda: seconds_to_drain(loader(1)),
            "shuffled": lambda: seconds_to_drain(loader(SHUFFLED_AMONG)),
            "bare fresh": lambda: seconds_to_drain(source()),
            "fresh": lambda: seconds_to_drain(EchoLoader(source(), 1)),
        },
        progress,
    )
    ns = {
        name: sample.times(1e9 / (FRESH if "fresh" in name else USES))
        for name, sample in seconds.items()
    }
    shuffled = f"one repeat, shuffled among {SHUFFLED_AMONG}"
    return [
        Row("one repeat", ns["one"], "ns", ns["bare"], "bare generator", target="<= 0.5"),
        Row(shuffled, ns["shuffled"], "ns", ns["bare"], "bare generator"),
        Row("a fresh item that costs nothing", ns["fresh"], "ns", ns["bare fresh"], "its source"),
    ]
