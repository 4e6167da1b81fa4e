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

Work = Callable[[], None]
Turn = tuple[float, float]


def timed(works: list[Work]) -> Turn:
    """Return the seconds of the functions, a thread each, and the share in which they ran."""
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
    return seconds, sum(used) / len(works) / seconds


def sources(size: int) -> list[np.ndarray]:
    """Return rows for one thread."""
    numbers = range(max(1, CACHED_BYTES // size))
    return [np.full(size, number % 256, np.uint8) for number in numbers]


def put(size: int, rows: int, threads: int) -> Turn:
    """Time the calls of `put`."""
    buffer = pyecho.EchoBuffer(
        pyecho.Field(size, np.uint8), batch_size=64, factor=1, shuffle_buffer=rows, threads=0
    )

    def work_of(source: list[np.ndarray]) -> Work:
        def work() -> None:
            put = buffer.put
            for number in range(rows // threads):
                put(source[number % len(source)])

        return work

    turn = timed([work_of(sources(size)) for _ in range(threads)])
    buffer.stop()
    return turn


def copy(slots: np.ndarray, threads: int) -> Turn:
    """Time NumPy's assignment to each row of an array."""

    def work_of(share: np.ndarray, source: list[np.ndarray]) -> Work:
        def work() -> None:
            for number in range(len(share)):
                share[number] = source[number % len(source)]

        return work

    size = slots.shape[1]
    return timed([work_of(share, sources(size)) for share in np.split(slots, threads)])


def with_own_cores(least: float, run: Callable[[], Turn]) -> float:
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
    works = {"put": partial(put, size, rows), "copy": partial(copy, slots)}
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
