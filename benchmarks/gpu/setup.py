"""Sizes, rows of random bytes in host memory, and times, which all measurements need."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

WARM_UP_BATCHES = 12
"""More than any contestant makes ahead, so that no stock is counted."""


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
    ratio: float
    """The intended t_up / t_down of the training; the report has the measured one."""
    steps: int
    """Of a run of training, at least."""
    factors: tuple[int, ...]
    """In the training."""
    images: int
    """In a batch of the training, if there is memory."""


SMALL_BYTES, LARGE_BYTES = 32 * 32 * 3, 224 * 224 * 3
FULL = Scale(
    rounds=7,
    small=Rows("3 KB rows", SMALL_BYTES, batch=1024, pool=65_536, batches=400),
    large=Rows("150 KB rows", LARGE_BYTES, batch=256, pool=1024, batches=100),
    source_bytes=1 << 30,
    matrix=4096,
    ratio=4.0,
    steps=10,
    factors=(1, 2, 3, 4, 5),
    images=128,
)
QUICK = Scale(
    rounds=1,
    small=Rows("3 KB rows", SMALL_BYTES, batch=32, pool=512, batches=4),
    large=Rows("150 KB rows", LARGE_BYTES, batch=8, pool=64, batches=4),
    source_bytes=8 << 20,
    matrix=128,
    ratio=0.1,
    steps=1,
    factors=(1, 2),
    images=2,
)
"""To see whether everything runs, on an emulated device, too; the numbers mean nothing."""


def random_rows(rows: Rows, total_bytes: int) -> NDArray[np.uint8]:
    """Return rows of random bytes: whole batches, of about `total_bytes` together."""
    count = max(2, total_bytes // rows.batch_bytes) * rows.batch
    words = np.random.default_rng(0).integers(2**63, size=count * rows.row_bytes // 8 + 1)
    return words.view(np.uint8)[: count * rows.row_bytes].reshape(count, rows.row_bytes)


def endless_batches(array: NDArray[Any], batch: int) -> Iterator[NDArray[Any]]:
    """Yield the rows in batches, over and over, without copying any."""
    while True:
        for start in range(0, len(array) - batch + 1, batch):
            yield array[start : start + batch]


def pinned_batches(rows: Rows, count: int) -> list[torch.Tensor]:
    """Return different batches of random bytes in PyTorch's pinned memory."""
    array = random_rows(rows, count * rows.batch_bytes)
    return [torch.from_numpy(part).pin_memory() for part in np.split(array, count)]


def copied(batches: Iterator[torch.Tensor], device: torch.device) -> Iterator[torch.Tensor]:
    """Copy each pinned batch when it is asked for, asynchronously, on the consumer's stream."""
    for batch in batches:
        yield batch.to(device, non_blocking=True)


def prefetched(batches: Iterator[torch.Tensor], device: torch.device) -> Iterator[torch.Tensor]:
    """Copy one batch ahead on a stream of its own, as timm's PrefetchLoader does."""
    stream: Any = torch.cuda.Stream(device)
    ready: torch.Tensor | None = None
    for batch in batches:
        with torch.cuda.stream(stream):
            coming = batch.to(device, non_blocking=True)
        if ready is not None:
            yield ready
        current = torch.cuda.current_stream(device)
        current.wait_stream(stream)
        coming.record_stream(current)
        ready = coming


def seconds(device: torch.device, work: Callable[[], Any]) -> float:
    """Return the time of `work`, including the work that it queues on the device."""
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    work()
    torch.cuda.synchronize(device)
    return time.perf_counter() - began


def seconds_of_batches(device: torch.device, batches: Iterator[Any], count: int) -> float:
    """Return how long it takes to get `count` batches from an endless iterator, dropping each."""
    for _ in range(WARM_UP_BATCHES):
        next(batches)

    def take() -> None:
        for _ in range(count):
            next(batches)

    return seconds(device, take)
