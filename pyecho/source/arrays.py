"""Columns: arrays, tensors and whatever else has rows by number. Their rows are the items."""

from __future__ import annotations

import itertools
import math
import mmap
import operator
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.items.spec import is_tensor
from pyecho.source.base import Pass, Source
from pyecho.source.reader import CHUNK_BYTES, Indexed, rows_of_all
from pyecho.source.sniff import has_special, is_arrow, length_of

MOST_CHUNK_BYTES = 64 * CHUNK_BYTES  # where a file is compressed in chunks as large as this
TENSOR_ROWS = 256  # tensors made at a time when one is iterated by row: iter() would make all


class Arrays(Source):
    """Columns of equal length: an array, or a tuple, namedtuple, list or mapping of columns.

    The items are rows, or tuples, namedtuples or dicts of a row of each column; if `chunked`,
    chunks of about a megabyte, provided that all columns slice into arrays.
    """

    def __init__(self, given: Any, columns: list[Any], *, unbatch: bool, chunked: bool) -> None:
        super().__init__(given)
        self.in_memory = all(map(in_memory, columns))
        self._by_index = not unbatch  # where a row is depends on the batches before it
        self._columns = columns
        self._keys = _names_of(given) if has_columns(given) else ()
        self._rows = rows_in(columns[0]) or 0
        self._chunked = chunked and all(
            (is_array(column) or is_sliced(column))
            and not getattr(column.dtype, "hasobject", False)
            for column in columns
        )
        self.batched = unbatch or self._chunked

    def _open(self, at: int) -> Pass:
        return Pass(self._items(at))

    def _items(self, start: int) -> Iterator[Any]:
        if self._chunked:
            step = _chunk_rows(self._columns)
            return Indexed(partial(self._chunk, step), start, self._rows, step=step)
        parts = [_iterated(column, start) for column in self._columns]
        # Other keys than str may run Python code when they are hashed.
        if all(type(key) is str for key in self._keys) and None not in parts:
            return self._together(parts)
        rows = [
            _SlicedRows(each) if is_sliced(each) else partial(operator.getitem, each)
            for each in self._columns
        ]
        return Indexed(lambda index: self._item(row(index) for row in rows), start, self._rows)

    def item(self, index: Any) -> Any:
        """Return the item at an index."""
        return self._item(_row(column, index) for column in self._columns)

    def rows(self) -> int:
        """Return the number of rows."""
        return self._rows

    def split_lists(self) -> None:
        """Do nothing: no row is a list."""

    @property
    def gathered_rows(self) -> int | None:
        """Rows that `gather` should make at a time; None if one by one costs less."""
        plain = all(is_array(column) for column in self._columns)
        rows = _chunk_rows(self._columns) if self._chunked and plain and self._rows else 0
        return rows if rows >= MOST_CHUNK_BYTES // CHUNK_BYTES else None

    def gather(self, indices: Any) -> Any:
        """Return the rows at these indices, as items that are batches have them."""
        return self._item(column[indices] for column in self._columns)

    def _chunk(self, step: int, index: int) -> Any:
        end = index - index % step + step
        return self._item(_sliced(column, index, end) for column in self._columns)

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

    def _length(self) -> int | None:
        if self._by_index:
            return self._rows
        for column in self._columns:
            if len(getattr(column, "shape", ())) > 1:
                return int(column.shape[0] * column.shape[1])
        return rows_of_all(self._items(0)) if self.in_memory else None


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


def _row(column: Any, index: Any) -> Any:
    row = column[index]
    return _read_in(row) if isinstance(row, np.ndarray) and _is_mapped(row) else row


class _SlicedRows:
    """Rows of what slices, by number: read by chunk, of which the last one is kept."""

    def __init__(self, column: Any) -> None:
        self._column = column
        self._rows = _chunk_rows([column])
        self._chunk: tuple[int, Any] = (0, ())

    def __call__(self, index: int) -> Any:
        begin, chunk = self._chunk
        if not begin <= index < begin + len(chunk):
            begin = index - index % self._rows
            chunk = _sliced(self._column, begin, begin + self._rows)
            self._chunk = begin, chunk
        return chunk[index - begin]


def _sliced(column: Any, begin: int, end: int) -> Any:
    """Return some rows as an array, read in if the column lies in a file."""
    rows = column[begin:end]
    if isinstance(column, np.ndarray):
        return _read_in(rows) if _is_mapped(column) else rows
    return rows if hasattr(type(rows), "__dlpack__") else np.asarray(rows)


def _read_in(rows: np.ndarray[Any, Any]) -> Any:
    return rows.copy() if isinstance(rows, np.ma.MaskedArray) else np.array(rows)


def _chunk_rows(columns: list[Any]) -> int:
    """Return the rows of a chunk: of about a megabyte, and of whole chunks of a file."""
    sizes = [math.prod(each.shape) * getattr(each.dtype, "itemsize", 8) for each in columns]
    length, total_bytes = int(columns[0].shape[0]), max(1, sum(sizes))
    rows = max(1, CHUNK_BYTES * length // total_bytes)
    for chunk in map(_rows_in_chunk, columns):
        whole = -(-rows // chunk) * chunk
        if whole * total_bytes <= MOST_CHUNK_BYTES * length:
            rows = whole
    return int(rows)


def _rows_in_chunk(column: Any) -> int:
    """Return the rows of a chunk of h5py or zarr, or of the largest one of dask; else 1."""
    chunks = getattr(column, "chunks", None)
    first = chunks[0] if isinstance(chunks, tuple) and chunks else 1
    rows = max(first, default=1) if isinstance(first, tuple) else first
    return max(1, int(rows)) if isinstance(rows, int | np.integer) else 1


# ------------------------------------------------------------ what is a column


def has_columns(given: Any) -> bool:
    """Return True for a mapping, and for a group of zarr, which is none."""
    return isinstance(given, Mapping) or has_special(given, "array_keys")


def _names_of(given: Any) -> tuple[Any, ...]:
    """Return the keys in order; a group of zarr has them in another one each time."""
    return tuple(given.keys() if isinstance(given, Mapping) else sorted(given.keys()))


def columns_of(given: Any, *, alike: bool, unbatch: bool, ragged: bool = False) -> list[Any] | None:
    """Return the columns of a source, None if its items are not rows of columns.

    `alike`: items must be alike, but in size if `ragged`, so that a list of arrays that differ
    cannot be one of items.
    """
    if is_array(given) or (is_sliced(given) and not hasattr(given, "__dlpack__")):
        return [given]
    columns: Any = given
    if has_columns(given):
        columns = {key: given[key] for key in _names_of(given)}
        wrong = [key for key, column in columns.items() if rows_in(column) is None]
        if wrong or not columns:
            found = [f"{key!r} is a {type(columns[key]).__name__}" for key in wrong[:1]]
            raise ConfigError(
                f"the source is a {type(given).__name__}, whose values must be columns of equal "
                "length (arrays, tensors, lists), the rows of which together are the items, but "
                f"{''.join(found) or 'it is empty'}; pass columns, or what yields one item after "
                "the other, such as a list of dicts"
            )
    elif isinstance(given, tuple):
        named = hasattr(given, "_fields")
        examples = len(given) < 2 or all(isinstance(each, tuple) for each in given)
        if (examples and not named) or not given or None in map(rows_in, given):
            return None
        columns = given._asdict() if named else given  # type: ignore[attr-defined]
    elif type(given) is not list or not _is_table(given, unbatch, ragged):
        return None
    elif not (alike or any(map(is_sliced, given))):
        raise ConfigError(
            f"the source is a list of {len(given)} parts with {rows_in(given[0])} rows each, which "
            "may be columns or items: pass a tuple or a dict of columns, the rows of which "
            "together are the items; or an object with __iter__ (a Dataset, iter() of the list) "
            "that yields items"
        )
    values = list(columns.values() if isinstance(columns, dict) else columns)
    lengths = list(map(rows_in, values))
    if len(set(lengths)) > 1:
        told = dict(zip(columns, lengths, strict=True)) if isinstance(columns, dict) else lengths
        remedy = "an iterator" if isinstance(given, list) else "a list"
        raise ConfigError(
            f"the source is a {type(given).__name__} of columns, the rows of which together are "
            f"the items, but their lengths differ: {told}; pass {remedy} if each is an item"
        )
    return values


def _is_table(given: list[Any], unbatch: bool, ragged: bool) -> bool:
    """Return True if a list is one of columns: some slice, or they differ as items could not."""
    # A table has fewer columns than rows: so a long list need not be searched.
    if not given or not 1 < len(given) < (rows_in(given[0]) or 0) or None in map(rows_in, given):
        return False
    if any(map(is_sliced, given)):
        return True
    kinds = {
        (each.dtype, each.ndim if ragged else tuple(each.shape[1:]))
        if is_array(each)
        else type(each)
        for each in given
    }
    differ = len(kinds) > 1 and not unbatch and any(map(is_array, given))
    return differ and len(set(map(rows_in, given))) == 1


def rows_in(value: Any) -> int | None:
    """Return the number of rows of a column: an array, a list, a map-style dataset; else None."""
    if is_array(value):
        return len(value) if value.ndim > 0 else None
    if is_sliced(value):
        return int(value.shape[0])
    return length_of(value) if _has_items(value) else None


def is_array(value: Any) -> bool:
    """Return True for a NumPy array or a strided tensor."""
    if is_tensor(value):
        return value.layout == sys.modules["torch"].strided and not value.is_nested
    return isinstance(value, np.ndarray)


def is_sliced(value: Any) -> bool:
    """Return True for what gives an array for a slice: a dataset of h5py, an array of zarr."""
    if not _has_items(value) or is_array(value) or not hasattr(value, "dtype"):
        return False
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple) or not shape:
        return False
    return not has_special(value, "__len__") or length_of(value) == shape[0]  # zarr has no len()


def _has_items(value: Any) -> bool:
    return (
        has_special(value, "__getitem__")
        and not isinstance(value, str | bytes | Mapping | np.generic)
        and not (is_tensor(value) or is_arrow(value) or has_special(value, "keys"))
    )


def in_memory(source: Any) -> bool:
    """Return True if reading an array, list, tuple or range never waits."""
    if is_array(source):
        return bool(source.is_cpu) if is_tensor(source) else not _is_mapped(source)
    # A subclass that iterates in its own way may do anything.
    iterate = getattr(type(source), "__iter__", None)
    return iterate in (list.__iter__, tuple.__iter__, range.__iter__)


def _is_mapped(array: np.ndarray[Any, Any]) -> bool:
    """Return True if an array, or the array it is a view of, lies in a mapped file."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if isinstance(owner, np.memmap):
            return True
        owner = owner.base
    return isinstance(owner, mmap.mmap)
