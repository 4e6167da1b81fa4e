"""Measures the Python-side targets of the design, each as a ratio to its limit in the same run.

Run it with the Python that has pyecho installed, from any folder but the source folder:
``python benchmarks/targets.py``. Medians with [lowest, highest]; pairs alternate.
"""

from __future__ import annotations

import argparse
import collections
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

import pyecho


def drain(items: Iterable[Any]) -> float:
    """Return the seconds it takes to read `items` to the end."""
    iterator = iter(items)
    began = time.perf_counter()
    collections.deque(iterator, maxlen=0)
    return time.perf_counter() - began


def show(name: str, values: list[float], target: str, unit: str = "") -> None:
    """Print one row."""
    middle = statistics.median(values)
    print(
        f"{name:58s} {middle:8.3f}{unit} [{min(values):.3f}, {max(values):.3f}]   target {target}"
    )


def repeat_against_generator(pairs: int) -> None:
    """One repeat in batch echoing against a bare generator that re-yields the object."""
    uses = 2_000_000
    item = object()

    def generator() -> Iterator[object]:
        for _ in range(uses):
            yield item

    for name, shuffle in (("one repeat / bare generator", 0), ("the same, shuffled among 16", 16)):
        ratios = []
        for _ in range(pairs):
            bare = drain(generator())
            distinct = max(1, shuffle)
            loader = pyecho.EchoLoader([item] * distinct, uses // distinct, shuffle_buffer=shuffle)
            ratios.append(drain(loader) / bare)
        show(name, ratios, "<= 0.5")


def put_against_memcpy(pairs: int) -> None:
    """`put` of a two-leaf example, less a memcpy of its bytes, in microseconds."""
    for row_bytes in (256, 3072):
        examples = 20_000
        example = {"x": np.zeros(row_bytes, np.uint8), "y": 3}
        extra = []
        for _ in range(pairs):
            buffer = pyecho.EchoBuffer(
                pyecho.spec_of(example), batch_size=64, factor=1, capacity=examples
            )
            slots = np.zeros((examples, row_bytes), np.uint8)
            began = time.perf_counter()
            for _ in range(examples):
                buffer.put(example)
            put = time.perf_counter() - began
            # NumPy's row assignment is a memcpy with the interpreter's loop around it; what that
            # loop costs with an empty row is its floor.
            row = example["x"]
            began = time.perf_counter()
            for index in range(examples):
                slots[index] = row
            copied = time.perf_counter() - began
            empty, none = np.zeros((examples, 0), np.uint8), np.zeros(0, np.uint8)
            began = time.perf_counter()
            for index in range(examples):
                empty[index] = none
            floor = time.perf_counter() - began
            extra.append((put - max(0.0, copied - floor)) / examples * 1e6)
            buffer.stop()
        show(f"put, two leaves, {row_bytes} B, less memcpy", extra, "<= 1.5 us", " us")


class TimedSource:
    """Yields `items` items, each after `seconds`; knows how long it really took."""

    def __init__(self, items: int, seconds: float, make: Callable[[int], Any]) -> None:
        self._items = items
        self._seconds = seconds
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        for index in range(self._items):
            time.sleep(self._seconds)
            yield self._make(index)


def wall_time_against_equation_1(pairs: int) -> None:
    """Wall time of a pipeline against Eq. 1 with the times that source and consumer really took."""
    rows = 32
    batch = np.zeros((rows, 3072), np.uint8)
    for factor in (1, 3, 5):
        for name, options in (
            ("batch echoing", {}),
            (
                "example echoing, shuffled",
                {"batch_size": rows, "unbatch": True, "shuffle_buffer": 64},
            ),
        ):
            ratios = []
            for _ in range(pairs):
                loader = pyecho.EchoLoader(
                    TimedSource(200, 5e-3, lambda _: batch), factor, **options
                )
                began = time.perf_counter()
                downstream = 0.0
                for _ in loader:
                    step = time.perf_counter()
                    time.sleep(1e-3)
                    downstream += time.perf_counter() - step
                wall = time.perf_counter() - began
                # In units of batches: t_up for each fresh one, t_down for each step.
                ratios.append(wall / max(loader.stats().source_seconds, downstream))
            show(
                f"wall time / Eq. 1, t_up 5 ms, t_down 1 ms, e = {factor}, {name}",
                ratios,
                "<= 1.02",
            )


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7, help="repetitions (default: %(default)s)")
    pairs = parser.parse_args().pairs
    repeat_against_generator(pairs)
    put_against_memcpy(pairs)
    wall_time_against_equation_1(max(3, pairs // 2))


if __name__ == "__main__":
    main()
