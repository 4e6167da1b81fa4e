"""How much faster two threads put examples than one, on a Python without a GIL.

    python benchmarks/free_threads.py [--rounds N] [--seconds S] [--bytes N ...]

The contestants take turns: one thread and two threads, each with

- put: `EchoBuffer.put` of one row a call, by ``put = buffer.put``
- attribute: the same, but each call looks `buffer.put` up
- batch: `EchoBuffer.put_batch` of 64 rows a call
- copy: NumPy's assignment of the same rows, one a call, to the rows of an array for each thread

All threads together put as many rows as one thread alone. Each has its own few source rows, which
stay in its cache. Only the putting is timed: the buffer has room for all rows, nothing is taken
from it, it has no threads of its own, and its memory was written to before.

A round counts only if each thread had a core to itself, that is, if it ran for 95% of the time of
the round. So programs beside it make the run longer, not the numbers wrong. Rounds are short, about
as long as a time slice. The first one never counts. Shown are medians and quartiles over N rounds
of each contestant; after S seconds, over as many as there are.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

import pyecho

BATCH_ROWS = 64
ROUND_BYTES = 19 << 20
MAX_ROWS = 4096
CACHED_BYTES = 256 << 10
OWN_CORE = 0.95
MIN_ROUNDS = 4

Work = Callable[[], None]


def timed(works: list[Work]) -> float | None:
    """Return the seconds of the functions, a thread each; None if one had to wait for a core."""
    spans: list[tuple[float, float]] = []
    used: list[float] = []
    arrived: list[None] = []

    def run(work: Work) -> None:
        arrived.append(None)
        while len(arrived) < len(works):  # awake, so that all begin at once
            pass
        begin, cpu = time.perf_counter(), time.thread_time()
        work()
        used.append(time.thread_time() - cpu)
        spans.append((begin, time.perf_counter()))

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = max(end for _, end in spans) - min(begin for begin, _ in spans)
    return seconds if sum(used) >= OWN_CORE * len(works) * seconds else None


def sources(size: int) -> list[np.ndarray]:
    """Return rows for one thread."""
    numbers = range(max(1, CACHED_BYTES // size))
    return [np.full(size, number % 256, np.uint8) for number in numbers]


def put(size: int, rows: int, threads: int, how: str) -> float | None:
    """Time the calls of `put` or `put_batch`."""
    buffer = pyecho.EchoBuffer(
        pyecho.Field(size, np.uint8), batch_size=64, factor=1, capacity=rows, threads=0
    )

    def work_of(source: list[np.ndarray]) -> Work:
        def bound() -> None:
            put = buffer.put
            for number in range(rows // threads):
                put(source[number % len(source)])

        def attribute() -> None:
            for number in range(rows // threads):
                buffer.put(source[number % len(source)])

        def batch() -> None:
            put_batch = buffer.put_batch
            block = np.concatenate([source] * (BATCH_ROWS // len(source) + 1))[:BATCH_ROWS]
            for _ in range(rows // threads // BATCH_ROWS):
                put_batch(block)

        return {"put": bound, "attribute": attribute, "batch": batch}[how]

    seconds = timed([work_of(sources(size)) for _ in range(threads)])
    buffer.stop()
    return seconds


def copy(slots: np.ndarray, threads: int) -> float | None:
    """Time NumPy's assignment to each row of an array."""

    def work_of(share: np.ndarray, source: list[np.ndarray]) -> Work:
        def work() -> None:
            for number in range(len(share)):
                share[number] = source[number % len(source)]

        return work

    size = slots.shape[1]
    return timed([work_of(share, sources(size)) for share in np.split(slots, threads)])


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Return median, lower and upper quartile."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def measure(size: int, rounds: int, limit_seconds: float) -> None:
    """Measure and print a table for rows of `size` bytes."""
    rows = min(MAX_ROWS, ROUND_BYTES // size) // (2 * BATCH_ROWS) * 2 * BATCH_ROWS
    slots = np.ones((rows, size), np.uint8)
    contestants: dict[str, Callable[[int], float | None]] = {
        how: lambda threads, how=how: put(size, rows, threads, how)
        for how in ("put", "attribute", "batch")
    }
    contestants["copy"] = lambda threads: copy(slots, threads)
    found: dict[tuple[str, int], list[float]] = {
        (name, threads): [] for name in contestants for threads in (1, 2)
    }
    tried = 0
    end = time.monotonic() + limit_seconds
    while min(map(len, found.values())) < rounds and time.monotonic() < end:
        for name, run in contestants.items():
            for threads in (1, 2):
                if len(found[name, threads]) >= rounds:
                    continue
                seconds = run(threads)
                if seconds is not None and tried:
                    found[name, threads].append(seconds / rows * 1e9)
        tried += 1
    print(f"\nrows of {size:,} B, ns a row: median [quartiles], {tried} rounds tried")
    for name in contestants:
        one, two = found[name, 1], found[name, 2]
        if min(len(one), len(two)) < MIN_ROUNDS:
            print(
                f"{name:9}  too few rounds in which each thread had a core ({len(one)}, {len(two)})"
            )
            continue
        (a, a_low, a_high), (b, b_low, b_high) = quartiles(one), quartiles(two)
        print(
            f"{name:9}  one {a:8.0f} [{a_low:.0f}, {a_high:.0f}]  two {b:8.0f} [{b_low:.0f}, "
            f"{b_high:.0f}]  times faster {a / b:.2f} [{a_low / b_high:.2f}, {a_high / b_low:.2f}]"
            f"  ({len(one)}, {len(two)} rounds)"
        )


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=31, metavar="N")
    parser.add_argument("--seconds", type=float, default=60, metavar="S", help="for each size")
    parser.add_argument("--bytes", type=int, nargs="+", default=[64, 3072, 24_576, 150_528])
    arguments = parser.parse_args()
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        print("This Python has a GIL: threads take turns.", file=sys.stderr)
    print(sys.version)
    for size in arguments.bytes:
        measure(size, arguments.rounds, arguments.seconds)


if __name__ == "__main__":
    main()
