"""torchdata.nodes: Unbatcher, Batcher, and a ParallelMapper with threads that stacks.

https://docs.pytorch.org/data/0.11/what_is_torchdata_nodes.html. It has no shuffling node: a mapper
shuffles the uses of a block before they are unbatched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torchdata.nodes import Batcher, IterableWrapper, Loader, Mapper, ParallelMapper, Unbatcher

from peers.workload import Source, Work

SNAPSHOT_EVERY = 1 << 20
"""A copy of the state for resuming is not asked for; made for each item, it costs the most."""


@contextlib.contextmanager
def examples(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Echo examples."""
    torch.set_num_threads(1)  # the mapper's threads stack, each a batch
    random = torch.Generator().manual_seed(1)

    def echoed(chunk: Any) -> list[torch.Tensor]:
        rows = torch.from_numpy(chunk).unbind()
        order = torch.randperm(len(rows) * work.factor, generator=random) % len(rows)
        return [rows[index] for index in order.tolist()]

    node: Any = IterableWrapper(source.chunks(work.pool))
    node = Unbatcher(Mapper(node, echoed))
    node = ParallelMapper(
        Batcher(node, work.batch, drop_last=False),
        torch.stack,
        num_workers=work.threads,
        method="thread",
        snapshot_frequency=SNAPSHOT_EVERY,
    )
    yield iter(Loader(node))


@contextlib.contextmanager
def batches(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Echo batches by reference."""
    node: Any = IterableWrapper(source.chunks(work.batch))
    yield iter(Loader(Unbatcher(Mapper(node, lambda batch: [batch] * work.factor))))
