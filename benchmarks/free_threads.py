"""Speed at which two threads put examples over that of one, on a Python without a GIL.

The contestants are one thread and two threads, each with `EchoBuffer.put` of one row a call, by
``put = buffer.put``, or with NumPy's assignment of the same rows to the rows of an array for each
thread.

All threads together put as many rows as one thread alone. Each has its own few source rows, which
stay in its cache. Only the putting is timed: the buffer has room for all rows, nothing is taken
from it, it has no threads of its own, and its memory was written to before.

A turn counts only if each thread had a core to itself, that is, if it ran for 95% of the time of
the turn; otherwise it is repeated. So programs beside it make the run longer, not the numbers
wrong. Turns are short, about as long as a time slice. With --quick all turns count.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from common import finish, new_parser, new_report

import pyecho
from pyecho.bench.row import Row
from pyecho.bench.sampling import interleaved

TURN_BYTES = 19 << 20
MAX_ROWS = 4096
CACHED_BYTES = 256 << 10
OWN_CORE = 0.95
MOST_TRIES = 1000
Put = Callable[[int, np.ndarray], object]


def turn(puts: list[Put], rows: int, size: int) -> tuple[float, float]:
    """Put rows, a thread with each function; return the seconds, and the share in which it ran."""
    spans: list[tuple[float, float, float]] = []
    arrived: list[None] = []
    numbers = range(rows // len(puts))

    def run(put: Put) -> None:
        source = [np.full(size, n % 256, np.uint8) for n in range(max(1, CACHED_BYTES // size))]
        arrived.append(None)
        while len(arrived) < len(puts):  # awake, so that all begin at once
            pass
        begin, cpu = time.perf_counter(), time.thread_time()
        for number in numbers:
            put(number, source[number % len(source)])
        spans.append((begin, time.perf_counter(), time.thread_time() - cpu))

    threads = [threading.Thread(target=run, args=(put,)) for put in puts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    begins, ends, used = zip(*spans, strict=True)
    seconds = max(ends) - min(begins)
    return seconds, sum(used) / len(puts) / seconds


def putting(size: int, rows: int, threads: int) -> tuple[float, float]:
    """Time `EchoBuffer.put`."""
    buffer = pyecho.EchoBuffer(
        pyecho.Field(size, np.uint8), batch_size=64, factor=1, shuffle_buffer=rows, threads=0
    )

    def one() -> Put:
        put = buffer.put
        return lambda _, row: put(row)

    found = turn([one() for _ in range(threads)], rows, size)
    buffer.stop()
    return found


def copying(slots: np.ndarray, threads: int) -> tuple[float, float]:
    """Time NumPy's assignment to each row of an array."""
    rows, size = slots.shape
    return turn([share.__setitem__ for share in np.split(slots, threads)], rows, size)


def with_own_cores(least: float, run: Callable[[], tuple[float, float]]) -> float:
    """Return the seconds of the first turn in which each thread had a core."""
    for _ in range(MOST_TRIES):
        seconds, share = run()
        if share >= least:
            return seconds
    raise SystemExit(f"In {MOST_TRIES} turns no thread had a core to itself: end other programs")


def measure(size: int, rounds: int, least: float) -> list[Row]:
    """Measure rows of `size` bytes."""
    rows = min(MAX_ROWS, TURN_BYTES // size) // 2 * 2
    slots = np.ones((rows, size), np.uint8)
    works = {"put": partial(putting, size, rows), "copy": partial(copying, slots)}
    contestants = {
        f"{name}, {threads}": partial(with_own_cores, least, partial(run, threads))
        for name, run in works.items()
        for threads in (1, 2)
    }
    seconds = interleaved(f"rows of {size:,} B", rounds, contestants)
    ns = {name: sample.times(1e9 / rows) for name, sample in seconds.items()}
    return [
        Row(
            f"{name}, 2 threads",
            ns[f"{name}, 2"],
            "ns",
            ns[f"{name}, 1"],
            "1 thread",
            ns[f"{name}, 1"] / ns[f"{name}, 2"],
        )
        for name in works
    ]


if __name__ == "__main__":
    options = new_parser(__doc__, rounds=31).parse_args()
    if getattr(sys, "_is_gil_enabled", lambda: True)() and not options.quick:
        raise SystemExit("this Python has a GIL, so threads take turns: use one without")
    least = 0.0 if options.quick else OWN_CORE
    report = new_report("free_threads", "Two threads that put", options, version=sys.version)
    report.note("numbers are those of a row; ratios: times faster than one thread")
    for size in (3072, 24_576, 150_528):
        report.add(f"Rows of {size:,} B", measure(size, options.rounds, least))
    finish(report, options)
