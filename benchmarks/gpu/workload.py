"""The echoed data: rows of random bytes in host memory, larger than any cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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


SMALL = Rows("3 KB rows", 32 * 32 * 3, batch=1024, pool=65_536, batches=400)
LARGE = Rows("150 KB rows", 224 * 224 * 3, batch=256, pool=1024, batches=100)


def quick(rows: Rows) -> Rows:
    """Return the same rows with a quarter of the batches to be timed."""
    return Rows(rows.name, rows.row_bytes, rows.batch, rows.pool, max(1, rows.batches // 4))


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
