"""Arrays, tensors and other columns: their rows are the items."""

from __future__ import annotations

import itertools
import math
import operator
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.items.rows import rows_of
from pyecho.source.base import Source
from pyecho.source.columns import SlicedRows, in_memory, is_array, is_sliced, rows_in, sliced
from pyecho.source.reader import CHUNK_BYTES, Indexed

MOST_CHUNK_BYTES = 64 * CHUNK_BYTES  # where a file is compressed in chunks as large as this
TENSOR_ROWS = 256  # tensors made at a time when one is iterated by row: iter() would make all


class Arrays(Source):
    """Columns of equal length: an array, or a tuple, namedtuple, list or mapping of columns.

    The items are rows, or tuples, namedtuples or dicts of a row of each column. In example echoing
    rows of arrays, and of columns that slice into arrays, come in chunks of about a megabyte
    (`batched`).
    """

    def __init__(
        self, given: Any, columns: list[Any], *, by_row: bool, unbatch: bool, collated: bool
    ) -> None:
        super().__init__(given)
        self.in_memory = all(map(in_memory, columns))
        self.indexed = not unbatch  # where a row is depends on the batches before it
        self._columns = columns
        self._keys = tuple(given.keys()) if isinstance(given, Mapping) else ()
        self._length = rows_in(columns[0])
        self._unbatch = unbatch
        self._chunked = (
            by_row
            and not (unbatch or collated)
            and all(is_array(column) or is_sliced(column) for column in columns)
            and not any(getattr(column.dtype, "hasobject", False) for column in columns)
        )
        self.batched = unbatch or self._chunked

    def read(self, start: int = 0) -> Iterator[Any]:
        """Begin one pass."""
        if self._chunked:
            step = _chunk_rows(self._columns)
            return Indexed(partial(self._chunk, step), start, self._length, step=step)
        parts = [_iterated(column, start) for column in self._columns]
        if (
            set(map(type, self._keys or [""])) == {str} and None not in parts
        ):  # hashed without Python
            return self._together(parts)
        rows = [_row_getter(column) for column in self._columns]
        return Indexed(lambda index: self._item(row(index) for row in rows), start, self._length)

    def _chunk(self, step: int, index: int) -> Any:
        end = index - index % step + step
        return self._item(sliced(column, index, end) for column in self._columns)

    def _item(self, parts: Iterable[Any]) -> Any:
        return next(self._together([(part,) for part in parts]))

    def _together(self, parts: list[Any]) -> Iterator[Any]:
        """Return an iterator of C's own over items, made of one iterable for each column."""
        kind = type(self.object)
        if self._columns[0] is self.object:
            return iter(parts[0])
        rows = zip(*parts, strict=True)
        if self._keys:
            return map(dict, map(zip, itertools.repeat(self._keys), rows))
        return map(partial(tuple.__new__, kind), rows) if hasattr(kind, "_fields") else rows

    def length(self) -> int | None:
        """Return the number of rows; with `unbatch` the rows of all of them."""
        if not self._unbatch:
            return self._length
        for column in self._columns:
            if len(getattr(column, "shape", ())) > 1:
                return int(column.shape[0] * column.shape[1])
        try:
            return sum(map(rows_of, self.read())) if self.in_memory else None
        except ConfigError:  # a batch without arrays
            return None


def _iterated(column: Any, start: int) -> Iterator[Any] | None:
    """Return an iterator of C's own over the rows; None if reading them runs Python code."""
    kind, torch = type(column), sys.modules.get("torch")
    if kind in (np.ndarray, np.memmap):
        return iter(np.asarray(column)[start:])
    if kind in (list, tuple, range):
        return itertools.islice(column, start, None)
    if torch is None or kind is not torch.Tensor:
        return None
    begins = range(start, len(column), TENSOR_ROWS)
    ends = range(start + TENSOR_ROWS, len(column) + TENSOR_ROWS, TENSOR_ROWS)
    chunks = map(column.__getitem__, map(slice, begins, ends))
    return itertools.chain.from_iterable(map(torch.unbind, chunks))


def _row_getter(column: Any) -> Any:
    if is_sliced(column):
        return SlicedRows(column, _chunk_rows([column]))
    return partial(operator.getitem, column)


def _chunk_rows(columns: list[Any]) -> int:
    """Return the rows of a chunk: of about a megabyte, and of whole chunks of a file."""
    sizes = [math.prod(each.shape) * getattr(each.dtype, "itemsize", 8) for each in columns]
    length, total_bytes = rows_in(columns[0]), max(1, sum(sizes))
    rows = max(1, CHUNK_BYTES * length // total_bytes)
    for chunks in (getattr(column, "chunks", None) for column in columns):  # of h5py and zarr
        whole = -(-rows // chunks[0]) * chunks[0] if chunks else rows
        if whole * total_bytes <= MOST_CHUNK_BYTES * length:
            rows = whole
    return int(rows)
