"""The echoed data: rows of random bytes in host memory, larger than any cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True)
class Rows:
    """Rows of one size, and how they are put into batches."""

    name: str
    row_bytes: int
    batch: int
    pool: int
    """Rows in the shuffle pool."""
    batches: int
    """To be timed in a round."""

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch."""
        return self.row_bytes * self.batch


SMALL_BYTES, LARGE_BYTES = 32 * 32 * 3, 224 * 224 * 3


@dataclass(frozen=True)
class Scale:
    """Sizes of the measurements."""

    rounds: int
    """Of what takes least; of the rest fewer."""
    small: Rows
    large: Rows
    source_bytes: int
    matrix: int
    """Rows and columns of the matrices that are multiplied."""
    fresh: int
    """Batches from the source in each run of a training."""
    resident_steps: int
    factors: tuple[int, ...]
    """In the training."""
    most_images: int
    """In a batch of the training."""


FULL = Scale(
    rounds=7,
    small=Rows("3 KB rows", SMALL_BYTES, batch=1024, pool=65_536, batches=400),
    large=Rows("150 KB rows", LARGE_BYTES, batch=256, pool=1024, batches=100),
    source_bytes=1 << 30,
    matrix=4096,
    fresh=10,
    resident_steps=10,
    factors=(1, 2, 3, 4, 5),
    most_images=128,
)
QUICK = replace(
    FULL,
    rounds=3,
    small=replace(FULL.small, batches=100),
    large=replace(FULL.large, batches=25),
    fresh=4,
)
TINY = Scale(
    rounds=1,
    small=replace(FULL.small, batch=32, pool=512, batches=4),
    large=replace(FULL.large, batch=8, pool=64, batches=4),
    source_bytes=8 << 20,
    matrix=128,
    fresh=1,
    resident_steps=1,
    factors=(1, 2),
    most_images=2,
)
"""To see whether everything runs, on an emulated device, too; the numbers mean nothing."""


def random_rows(rows: Rows, total_bytes: int) -> NDArray[np.uint8]:
    """Return rows of random bytes: whole batches, of about `total_bytes` together."""
    count = max(2, total_bytes // rows.batch_bytes) * rows.batch
    words = np.random.default_rng(0).integers(
        2**63, size=count * rows.row_bytes // 8 + 1, dtype=np.int64
    )
    return words.view(np.uint8)[: count * rows.row_bytes].reshape(count, rows.row_bytes)


def endless_batches(array: NDArray[Any], batch: int) -> Iterator[NDArray[Any]]:
    """Yield the rows in batches, over and over, without copying any."""
    while True:
        for start in range(0, len(array) - batch + 1, batch):
            yield array[start : start + batch]


def pinned_batches(rows: Rows, count: int) -> list[torch.Tensor]:
    """Return different batches of random bytes in PyTorch's pinned memory."""
    array = random_rows(rows, count * rows.batch_bytes)
    return [
        torch.from_numpy(array[start : start + rows.batch]).pin_memory()
        for start in range(0, count * rows.batch, rows.batch)
    ]
