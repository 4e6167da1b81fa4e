"""Arrow tables, streams and arrays, and datasets of Ray Data."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyecho._core import ArrowReader
from pyecho.items.nest import map_nest
from pyecho.items.rows import rows_of
from pyecho.source.arrow_types import column_of
from pyecho.source.reader import (
    CHUNK_BYTES,
    EXPORTS,
    Chained,
    Indexed,
    Source,
    has_special,
    length_of,
    too_short,
)

MAPS = Path("/proc/self/maps")


class Arrow(Source):
    """A source that exports Arrow data: items are record batches, in example echoing rows.

    These come in chunks of about a megabyte if `batched`, else one by one.
    """

    def __init__(self, given: Any, *, by_row: bool, batched: bool) -> None:
        super().__init__(given)
        self.one_shot = isinstance(given, Iterator)
        self.batched = batched
        self._by_row = by_row
        self._settle()

    def _settle(self) -> None:
        self.indexed = self._by_row and not self.one_shot
        knows = not self.one_shot and _rows_of_table(self.object) is not None
        self.in_memory = knows and not _is_mapped(_reader(self.object, None).address())

    def read(self, start: int = 0) -> Iterator[Any]:
        """Begin one pass."""
        batches = self._batches(CHUNK_BYTES if self._by_row else None, start)
        return batches if self.batched or not self._by_row else Chained(batches, _rows)

    def _batches(self, chunk_bytes: int | None, start: int) -> Any:
        batches = _reader(self.object, chunk_bytes)
        skipped = batches.skip(start)
        if skipped < start:
            raise too_short(skipped, start)
        return batches

    def length(self) -> int | None:
        """Return the number of rows; record batches are not counted."""
        return _rows_of_table(self.object) if self._by_row else None


class RayData(Arrow):
    """A dataset of Ray Data, or a worker's shard of one: likewise, block by block."""

    def _settle(self) -> None:
        pass

    def _batches(self, chunk_bytes: int | None, start: int) -> Iterator[Any]:
        from pyecho.integrations.ray import plain_table, ray_tables

        tables = ray_tables(self.object)
        return Chained(tables, lambda table: _reader(plain_table(table), chunk_bytes))

    def length(self) -> int | None:
        """Return the number of rows of a dataset that has been computed."""
        from pyecho.integrations.ray import ray_rows

        return ray_rows(self.object) if self._by_row else None


def _rows_of_table(source: Any) -> int | None:
    """Return the number of rows, where telling it runs no query."""
    for name in ("num_rows", "height"):  # pyarrow, Polars
        rows = getattr(source, name, None)
        if isinstance(rows, int):
            return rows
    return length_of(source) if has_special(source, "__iter__") else None


def _reader(source: Any, chunk_bytes: int | None) -> Any:
    method = next(name for name in EXPORTS if has_special(source, name))
    return ArrowReader(getattr(source, method)(), column_of, chunk_bytes=chunk_bytes)


def _is_mapped(address: int | None) -> bool:
    """Return True if an address lies in a mapped file, so reading may wait for the disk.

    Known on Linux.
    """
    if address is None or not MAPS.exists():
        return False
    for line in MAPS.read_bytes().splitlines():  # begin-end access offset device inode path
        bounds, _, _, _, inode = line.split(maxsplit=5)[:5]
        begin, end = (int(bound, 16) for bound in bounds.split(b"-"))
        if begin <= address < end:
            return inode != b"0"
    return False


def _rows(batch: Any) -> Iterator[Any]:
    return Indexed(lambda row: map_nest(operator.itemgetter(row), batch), 0, rows_of(batch))
