"""Shows the pool as it fills before the first batch, and warns if that took long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from pyecho.config import Config
from pyecho.items.rows import rows_of
from pyecho.source import Source
from pyecho.warn import warn

LONG_SECONDS = 10.0
"""A pool that is full earlier is not worth a warning."""


def shown_filling(items: Any, source: Source, config: Config, length: int | None) -> Any:
    """Return the items of a pass, with a bar while the pool fills, if the options ask for one.

    With a warning once it is full, if that took long, of a pool that has a third or more of a pass
    of this length. What the items go through is no generator, see `pyecho.source.reader`.
    """
    if source.native or source.fills_slots:
        return items
    capacity = config.capacity_for(length)
    if config.progress:
        from pyecho.run.progress import Filling

        items = Filling(items, capacity, rows_of if source.batched else None)
    rows = source.rows_told() if source.batched else 1
    if capacity < 2 or length is None or not rows or 3 * capacity < length:
        return items
    told = _tell(source, capacity, length, time.perf_counter())
    return chain(islice(items, -(-capacity // rows)), told, items)


def _tell(source: Source, capacity: int, length: int, began: float) -> Iterator[Any]:
    seconds = time.perf_counter() - began
    if seconds > LONG_SECONDS:
        warn(
            f"the source ({type(source.object).__name__}) took {seconds:.0f} s until the first "
            f"batch, because the pool holds {min(capacity, length):,} of {length:,} items and "
            "fills first; lower shuffle_buffer, and the first batch comes sooner"
        )
    yield from ()
