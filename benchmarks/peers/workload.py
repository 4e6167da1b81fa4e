"""The work that all contestants do, and the memory from which they read. Needs NumPy alone."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

ID_BYTES = 8
"""The first bytes of each row: its number in the source."""


@dataclasses.dataclass(frozen=True)
class Work:
    """The work, the same for all contestants."""

    title: str
    kind: Literal["examples", "batches"]
    shape: tuple[int, ...]
    """Of an example; its elements are bytes."""
    rows: int
    """Fresh examples in the source's memory, which is read in order and over again."""
    pool: int
    """Distinct examples among which each use is drawn, where a contestant allows that."""
    factor: int = 4
    batch: int = 256
    threads: int = 1
    """Cores that a contestant may use."""

    def __post_init__(self) -> None:
        # Otherwise the last batch of each separately shuffled block would be short.
        if self.rows % self.pool or self.pool % (self.batch * self.threads):
            raise ValueError(f"rows, pool and batches times threads must divide each other: {self}")
        if self.row_bytes < ID_BYTES:
            raise ValueError(f"a row must have at least {ID_BYTES} bytes: {self}")

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

    def as_json(self) -> dict[str, Any]:
        """Return the fields."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Work:
        """Return the work with these fields."""
        return cls(**{**fields, "shape": tuple(fields["shape"])})


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


def ids(batch: Any) -> NDArray[np.int64]:
    """Return the numbers of a batch's rows. The batch may be any kind of array on the host."""
    array = np.asarray(batch)
    flat = array.reshape(len(array), -1)
    return np.ascontiguousarray(flat[:, :ID_BYTES]).view(np.int64).reshape(-1)


@dataclasses.dataclass(frozen=True)
class Finding:
    """Properties of the output of one pass over the source."""

    exact: bool
    """Every example came exactly as often as the factor says."""
    uses: tuple[int, int]
    """The lowest and the highest number of uses."""
    distinct: float
    """Distinct examples in a batch, as a share of its rows."""
    mixing: float
    """Median distance of uses from their place in an unshuffled output, in pools."""

    @classmethod
    def of(cls, work: Work, emitted: NDArray[np.int64]) -> Finding:
        """Judge the numbers of all rows in the order in which they came."""
        counts = Counter(emitted.tolist())
        uses = [counts[number] for number in range(work.rows)]
        strangers = counts.keys() - set(range(work.rows))
        exact = not strangers and set(uses) == {work.factor}
        whole = len(emitted) // work.batch * work.batch
        parts = emitted[:whole].reshape(-1, work.batch)
        distinct = [len(np.unique(part)) / work.batch for part in parts]
        places = np.arange(len(emitted)) / work.factor
        moved = np.abs(places - emitted) / work.pool
        return cls(
            exact=exact,
            uses=(min(uses), max(uses)),
            distinct=float(np.mean(distinct)) if distinct else 0.0,
            mixing=float(np.median(moved)) if len(moved) else 0.0,
        )
