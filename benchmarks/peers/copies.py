"""pyecho, bare copies, and tools that keep rows in one array: the work as each does it.

A function here is a generator with one yield, an iterator of batches: it is entered before the
warm-up and left after the clock has stopped. Each runs in its own environment only, so it imports
its library itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from peers.work import Source, Work

Uses = Iterator[Iterator[Any]]
PIECE_BYTES = 8 << 20
"""Copied by one call, so that the interpreter's share is small even for small rows."""
ORDER = 1 << 20


def pyecho_examples(work: Work, source: Source) -> Uses:
    """Echo examples as the README says: `unbatch=True` for a source that yields batches."""
    import pyecho

    options: Any = {"batch_size": work.batch, "shuffle_buffer": work.pool, "unbatch": True}
    with pyecho.EchoLoader(source.chunks(work.batch), work.factor, **options) as loader:
        yield iter(loader)


def pyecho_singly(work: Work, source: Source) -> Uses:
    """Echo examples of a source that yields one after the other."""
    import pyecho

    examples = itertools.chain.from_iterable(source.chunks(work.batch))
    options = {"batch_size": work.batch, "shuffle_buffer": work.pool}
    with pyecho.EchoLoader(examples, work.factor, **options) as loader:
        yield iter(loader)


def pyecho_batches(work: Work, source: Source) -> Uses:
    """Echo batches by reference."""
    import pyecho

    with pyecho.EchoLoader(source.chunks(work.batch), work.factor) as loader:
        yield iter(loader)


def generator(work: Work, source: Source) -> Uses:
    """Yield each batch again and again: the limit of batch echoing."""
    yield (batch for batch in source.chunks(work.batch) for _ in range(work.factor))


def memcpy(work: Work, source: Source) -> Uses:
    """Copy each fresh row once into the pool and random rows out of it: the limit.

    Each thread copies its share of a period with calls that release the GIL. No hand-over for each
    batch, no random numbers, no exact counts, no allocation.
    """
    pool = source.rows[: work.pool].copy()
    order = np.random.default_rng(1).integers(work.pool, size=ORDER)
    share = work.pool // work.threads
    rows = min(share * work.factor, max(work.batch, PIECE_BYTES // work.row_bytes))
    buffers = [np.ones((rows, *work.shape), np.uint8) for _ in range(2 * work.threads)]

    def copy_share(number: int, chunk: Any, at: int) -> None:
        mine = slice(number * share, (number + 1) * share)
        pool[mine] = chunk[mine]
        for turn, begin in enumerate(range(0, share * work.factor, rows)):
            start = (at + number * share * work.factor + begin) % (ORDER - rows)
            length = min(rows, share * work.factor - begin)
            chosen, out = order[start : start + length], buffers[2 * number + turn % 2][:length]
            np.take(pool, chosen, axis=0, out=out, mode="clip")  # "raise" copies twice

    def uses(threads: ThreadPoolExecutor) -> Iterator[Any]:
        for turn, chunk in enumerate(source.chunks(work.pool)):
            at = turn * work.pool * work.factor
            jobs = [threads.submit(copy_share, n, chunk, at) for n in range(work.threads)]
            for job in jobs:
                job.result()
            yield from itertools.repeat(buffers[0][: work.batch], work.period)

    with ThreadPoolExecutor(work.threads) as threads:
        yield uses(threads)


def numpy_take(work: Work, source: Source) -> Uses:
    """Copy a block into one array, and take batches out of it by their shuffled numbers.

    Blocks do not mix, and the consumer waits while the next one is read.
    https://numpy.org/doc/stable/reference/generated/numpy.take.html
    """
    random = np.random.default_rng(1)
    pool = np.empty((work.pool, *work.shape), np.uint8)

    def uses() -> Iterator[Any]:
        for chunk in source.chunks(work.pool):
            pool[: len(chunk)] = chunk
            order = random.permutation(len(chunk) * work.factor) % len(chunk)
            for start in range(0, len(order), work.batch):
                yield pool.take(order[start : start + work.batch], axis=0)

    yield uses()


def torch_select(work: Work, source: Source) -> Uses:
    """Do the same with index_select, which copies rows with as many threads as torch has.

    https://docs.pytorch.org/docs/stable/generated/torch.index_select.html
    """
    import torch

    torch.set_num_threads(work.threads)
    random = torch.Generator().manual_seed(1)
    pool = torch.empty((work.pool, *work.shape), dtype=torch.uint8)

    def uses() -> Iterator[Any]:
        for chunk in source.chunks(work.pool):
            pool[: len(chunk)] = torch.from_numpy(chunk)
            order = torch.randperm(len(chunk) * work.factor, generator=random) % len(chunk)
            for start in range(0, len(order), work.batch):
                yield pool.index_select(0, order[start : start + work.batch])

    yield uses()


def cpprb(work: Work, source: Source) -> Uses:
    """Add a batch's share of fresh rows to a replay buffer, then sample a batch.

    https://ymd_h.gitlab.io/cpprb/features/flexible_environment/: any NumPy type; several rows may
    be added with one call. A sample is drawn with replacement.
    """
    from cpprb import ReplayBuffer

    buffer = ReplayBuffer(work.pool, env_dict={"x": {"shape": work.shape, "dtype": np.uint8}})

    def uses() -> Iterator[Any]:
        for chunk in source.chunks(work.batch // work.factor):
            buffer.add(x=chunk)
            yield buffer.sample(work.batch)["x"]

    yield uses()
