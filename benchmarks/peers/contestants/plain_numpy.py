"""No library but NumPy: a block of the pool's size is read, shuffled, and emptied.

Blocks do not mix, and the consumer waits while the next one is read.
https://numpy.org/doc/stable/reference/generated/numpy.stack.html
https://numpy.org/doc/stable/reference/generated/numpy.take.html
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from peers.workload import Source, Work


@contextlib.contextmanager
def stacked(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Keep the examples in a list, by reference, and stack them.

    A permutation of numbers is several times faster than `random.shuffle` of the list.
    """

    def generate() -> Iterator[Any]:
        random = np.random.default_rng(1)
        for chunk in source.chunks(work.pool):
            examples = list(chunk)
            order = random.permutation(len(examples) * work.factor) % len(examples)
            numbers = order.tolist()
            for start in range(0, len(numbers), work.batch):
                yield np.stack([examples[i] for i in numbers[start : start + work.batch]])

    yield generate()


@contextlib.contextmanager
def taken(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Copy the examples into one array, and take batches out of it by their numbers."""

    def generate() -> Iterator[Any]:
        random = np.random.default_rng(1)
        pool = np.empty((work.pool, *work.shape), np.uint8)
        for chunk in source.chunks(work.pool):
            pool[: len(chunk)] = chunk
            order = random.permutation(len(chunk) * work.factor) % len(chunk)
            for start in range(0, len(order), work.batch):
                yield pool.take(order[start : start + work.batch], axis=0)

    yield generate()
