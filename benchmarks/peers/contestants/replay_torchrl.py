"""torchrl: a replay buffer that is extended and sampled from; uses are not exact.

https://docs.pytorch.org/rl/stable/tutorials/rb_tutorial.html: a storage in contiguous memory
(LazyTensorStorage), `extend` with many rows at once, and the batch size given to the buffer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torchrl.data import LazyTensorStorage, ReplayBuffer

from peers.workload import Source, Work


@contextlib.contextmanager
def examples(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Extend by a batch's share of fresh rows, then sample a batch."""
    torch.set_num_threads(work.threads)
    buffer = ReplayBuffer(storage=LazyTensorStorage(work.pool), batch_size=work.batch)
    share = work.batch // work.factor
    views = [torch.from_numpy(view) for view in source.views(share)]

    def generate() -> Iterator[Any]:
        for rows in source.repeated(views):
            buffer.extend(rows)
            yield buffer.sample()

    yield generate()
