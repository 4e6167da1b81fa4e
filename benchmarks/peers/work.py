"""The work that all contestants do, and the memory from which they read. Needs NumPy alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ID_BYTES = 8
"""The first bytes of each row: its number in the source."""


@dataclass(frozen=True)
class Work:
    """The work, the same for all contestants."""

    kind: str
    """ "examples" or "batches"."""
    shape: tuple[int, ...]
    """Of an example; its elements are bytes."""
    rows: int
    """Fresh examples in the source's memory, which is read in order and over again."""
    pool: int
    """Distinct examples among which each use is drawn, where a contestant allows that."""
    threads: int
    """Cores that a contestant may use."""
    factor: int = 4
    batch: int = 256

    @property
    def row_bytes(self) -> int:
        """The size of an example."""
        return math.prod(self.shape)

    @property
    def period(self) -> int:
        """Batches after which the whole pool has been replaced.

        Only whole periods are timed, because the speed of contestants that fill, shuffle and empty
        a block varies within a period.
        """
        return self.pool * self.factor // self.batch


class Source:
    """Fresh examples in memory, read in order."""

    def __init__(self, work: Work) -> None:
        # Writes every byte, because unwritten pages all map to one page of zeros, which stays in
        # the cache, so that reading would be free.
        flat = np.resize(np.arange(251, dtype=np.uint8), (work.rows, work.row_bytes))
        numbers = np.arange(work.rows, dtype=np.int64)
        flat[:, :ID_BYTES] = numbers.view(np.uint8).reshape(work.rows, ID_BYTES)
        self.rows: NDArray[np.uint8] = flat.reshape(work.rows, *work.shape)
        self.passes: int | None = None
        """Number of times the rows are read; None for endlessly."""

    def chunks(self, size: int) -> Iterator[NDArray[np.uint8]]:
        """Yield views of `size` consecutive rows; they are made once, and cost nothing later."""
        return self.repeated(self.views(size))

    def views(self, size: int) -> list[NDArray[np.uint8]]:
        """Return the views of one pass."""
        return [self.rows[start : start + size] for start in range(0, len(self.rows), size)]

    def repeated(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items of one pass as often as the source is read."""
        turns = itertools.repeat(items) if self.passes is None else [items] * self.passes
        return itertools.chain.from_iterable(turns)


def finding(work: Work, batches: Iterable[Any]) -> dict[str, Any]:
    """Judge the whole output of one pass over the source; batches may be any arrays on the host.

    Returns the lowest and highest number of `uses` of an example, the share of `distinct` examples
    in a batch, and `mixing`: the median distance of uses from their place in an unshuffled output,
    in pools.
    """
    numbers = [_ids(batch) for batch in batches]
    if work.kind == "batches":
        numbers = [each[:1] // work.batch for each in numbers]
    emitted = np.concatenate(numbers)
    items = work.rows // (work.batch if work.kind == "batches" else 1)
    counts = np.bincount(emitted, minlength=items)
    moved = np.abs(np.arange(len(emitted)) / work.factor - emitted) / work.pool
    return {
        "uses": (int(counts.min()), int(counts.max())),
        "distinct": float(np.mean([len(np.unique(each)) / len(each) for each in numbers])),
        "mixing": float(np.median(moved)),
    }


def _ids(batch: Any) -> NDArray[np.int64]:
    array = np.asarray(batch)
    flat = array.reshape(len(array), -1)
    return np.ascontiguousarray(flat[:, :ID_BYTES]).view(np.int64).reshape(-1)
