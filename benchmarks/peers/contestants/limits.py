"""The minimum of work that any tool must do: copy the bytes, or hand over the object."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peers.workload import Source, Work

PIECE_BYTES = 8 << 20
"""Copied by one call, so that the interpreter's share is small even for small rows."""
ORDER = 1 << 20


@contextlib.contextmanager
def memcpy(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Copy each fresh row once into the pool and random rows out of it, on all cores."""
    with ThreadPoolExecutor(work.threads) as threads:
        yield _copied(work, source, threads, work.threads)


@contextlib.contextmanager
def memcpy_single(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Do the same with one thread."""
    with ThreadPoolExecutor(1) as threads:
        yield _copied(work, source, threads, 1)


def _copied(
    work: Work, source: Source, threads: ThreadPoolExecutor, shares: int
) -> Iterator[NDArray[np.uint8]]:
    # Each thread copies its share of a period with calls that release the GIL. No hand-over for
    # each batch, no random numbers, no exact counts, no allocation.
    pool = source.rows[: work.pool].copy()
    order = np.random.default_rng(1).integers(work.pool, size=ORDER)
    share = work.pool // shares
    rows = min(share * work.factor, max(work.batch, PIECE_BYTES // work.row_bytes))
    buffers = [np.ones((rows, *work.shape), np.uint8) for _ in range(2 * shares)]

    def copy_share(number: int, chunk: NDArray[np.uint8], at: int) -> None:
        mine = slice(number * share, (number + 1) * share)
        pool[mine] = chunk[mine]
        for turn, begin in enumerate(range(0, share * work.factor, rows)):
            start = (at + number * share * work.factor + begin) % (ORDER - rows)
            length = min(rows, share * work.factor - begin)
            # With mode "raise", take would copy into a temporary first.
            np.take(
                pool,
                order[start : start + length],
                axis=0,
                out=buffers[2 * number + turn % 2][:length],
                mode="clip",
            )

    at = 0
    for chunk in source.chunks(work.pool):
        jobs = [threads.submit(copy_share, number, chunk, at) for number in range(shares)]
        for job in jobs:
            job.result()
        at += work.pool * work.factor
        for _ in range(work.period):
            yield buffers[0][: work.batch]


@contextlib.contextmanager
def generator(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Yield each batch again and again."""

    def uses() -> Iterator[Any]:
        for batch in source.chunks(work.batch):
            for _ in range(work.factor):
                yield batch

    yield uses()
