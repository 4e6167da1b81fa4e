"""Columns: sized and indexable things, the rows of which together are the items of a source."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.items.spec import is_tensor
from pyecho.source.arrow import has_special, is_arrow
from pyecho.source.lengths import length_of


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


def is_column(value: Any) -> bool:
    """Return True for what has rows by number: an array, a list, a map-style dataset."""
    if is_array(value):
        return bool(value.ndim > 0)
    return is_sliced(value) or (_has_items(value) and length_of(value) is not None)


def _has_items(value: Any) -> bool:
    return (
        has_special(value, "__getitem__")
        and not isinstance(value, str | bytes | Mapping | np.generic)
        and not (is_tensor(value) or is_arrow(value) or has_special(value, "keys"))
    )


def rows_in(column: Any) -> int:
    """Return the number of rows of a column."""
    return int(column.shape[0]) if is_sliced(column) else len(column)


def is_mapped(array: np.ndarray[Any, Any]) -> bool:
    """Return True if an array, or the array it is a view of, lies in a mapped file."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if isinstance(owner, np.memmap):
            return True
        owner = owner.base
    return isinstance(owner, mmap.mmap)


def in_memory(source: Any) -> bool:
    """Return True if reading an array, list, tuple or range never waits."""
    if is_array(source):
        return bool(source.is_cpu) if is_tensor(source) else not is_mapped(source)
    # A subclass that iterates in its own way may do anything.
    iterate = getattr(type(source), "__iter__", None)
    return iterate in (list.__iter__, tuple.__iter__, range.__iter__)


def columns_of(given: Any, *, alike: bool, unbatch: bool) -> list[Any] | None:
    """Return the columns of a source, None if its items are not rows of columns.

    `alike`: items must be alike, so that a list of arrays that differ cannot be one of items.
    """
    if is_array(given) or (is_sliced(given) and not hasattr(given, "__dlpack__")):
        return [given]
    if isinstance(given, Mapping):
        return _mapped(given)
    if isinstance(given, tuple):
        named = hasattr(given, "_fields")
        examples = len(given) < 2 or all(isinstance(each, tuple) for each in given)
        if (examples and not named) or not given or not all(map(is_column, given)):
            return None
        return _checked(given, given._asdict() if named else given)  # type: ignore[attr-defined]
    # A table has fewer columns than rows: so a long list need not be searched.
    if type(given) is not list or not given or not is_column(given[0]):
        return None
    return _listed(given, alike, unbatch) if 1 < len(given) < rows_in(given[0]) else None


def _mapped(given: Mapping[Any, Any]) -> list[Any]:
    columns = {key: given[key] for key in given.keys()}  # noqa: SIM118  (of a TensorDict)
    wrong = [key for key, column in columns.items() if not is_column(column)]
    if wrong or not columns:
        found = f"{wrong[0]!r} is a {type(columns[wrong[0]]).__name__}" if wrong else "it is empty"
        raise ConfigError(
            f"the source is a {type(given).__name__}, whose values must be columns of equal length "
            f"(arrays, tensors, lists), the rows of which together are the items, but {found}; "
            "pass columns, or what yields one item after the other, such as a list of dicts"
        )
    return _checked(given, columns)


def _listed(given: list[Any], alike: bool, unbatch: bool) -> list[Any] | None:
    """Return the columns of a list: if some slice, or if they differ as items could not."""
    if not all(map(is_column, given)):
        return None
    if any(map(is_sliced, given)):
        return _checked(given, given)
    kinds = {
        (each.dtype, tuple(each.shape[1:])) if is_array(each) else type(each) for each in given
    }
    if len(kinds) == 1 or unbatch or not any(map(is_array, given)):
        return None
    if len(set(map(rows_in, given))) > 1:
        return None
    if alike:
        return given
    raise ConfigError(
        f"the source is a list of {len(given)} parts with {rows_in(given[0])} rows each, which may "
        "be columns or items: pass a tuple or a dict of columns, the rows of which together are "
        "the items; or an object with __iter__ (a Dataset, iter() of the list) that yields items"
    )


def _checked(given: Any, columns: Any) -> list[Any]:
    """Return the columns, a dict of them if they have names; `ConfigError` if lengths differ."""
    named = isinstance(columns, dict)
    values = list(columns.values() if named else columns)
    lengths = list(map(rows_in, values))
    if len(set(lengths)) > 1:
        told = dict(zip(columns, lengths, strict=True)) if named else lengths
        remedy = "an iterator" if isinstance(given, list) else "a list"
        raise ConfigError(
            f"the source is a {type(given).__name__} of columns, the rows of which together are "
            f"the items, but their lengths differ: {told}; pass {remedy} if each is an item"
        )
    return values


class SlicedRows:
    """Rows of what slices, by number: read by chunk, of which the last one is kept."""

    def __init__(self, column: Any, rows: int) -> None:
        self._column = column
        self._rows = rows
        self._chunk: tuple[int, Any] = (0, ())

    def __call__(self, index: int) -> Any:
        """Return one row."""
        begin, chunk = self._chunk
        if not begin <= index < begin + len(chunk):
            begin = index - index % self._rows
            chunk = sliced(self._column, begin, begin + self._rows)
            self._chunk = begin, chunk
        return chunk[index - begin]


def sliced(column: Any, begin: int, end: int) -> Any:
    """Return some rows as an array, read in if the column lies in a file."""
    rows = column[begin:end]
    if isinstance(column, np.ndarray):
        return np.array(rows) if is_mapped(column) else rows
    return rows if hasattr(type(rows), "__dlpack__") else np.asarray(rows)
