"""No loader but PyTorch's own functions: a block is read, shuffled, and emptied.

https://docs.pytorch.org/docs/stable/generated/torch.stack.html
https://docs.pytorch.org/docs/stable/generated/torch.index_select.html, which copies rows with as
many threads as https://docs.pytorch.org/docs/stable/generated/torch.set_num_threads.html says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from peers.workload import Source, Work


@contextlib.contextmanager
def stacked(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Keep the examples in a list, by reference, and stack them."""
    torch.set_num_threads(work.threads)

    def generate() -> Iterator[Any]:
        random = torch.Generator().manual_seed(1)
        for chunk in source.chunks(work.pool):
            examples = torch.from_numpy(chunk).unbind()
            order = torch.randperm(len(examples) * work.factor, generator=random) % len(examples)
            numbers = order.tolist()
            for start in range(0, len(numbers), work.batch):
                yield torch.stack([examples[i] for i in numbers[start : start + work.batch]])

    yield generate()


@contextlib.contextmanager
def selected(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Copy the examples into one tensor, and select batches out of it by their numbers."""
    torch.set_num_threads(work.threads)

    def generate() -> Iterator[Any]:
        random = torch.Generator().manual_seed(1)
        pool = torch.empty((work.pool, *work.shape), dtype=torch.uint8)
        for chunk in source.chunks(work.pool):
            pool[: len(chunk)] = torch.from_numpy(chunk)
            order = torch.randperm(len(chunk) * work.factor, generator=random) % len(chunk)
            for start in range(0, len(order), work.batch):
                yield pool.index_select(0, order[start : start + work.batch])

    yield generate()
