"""Rows of Arrow arrays as leaves of items; docs/sources.md says what each type becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from pyecho._core import ConfigError

NUMBERS = {pa.from_numpy_dtype(each).id for each in "bBhHiIqQefd"}
LISTS = {pa.list_(pa.null()).id, pa.large_list(pa.null()).id}
TEXT = {pa.null().id}
TEXT |= {each().id for each in (pa.string, pa.large_string, pa.string_view)}
TEXT |= {each().id for each in (pa.binary, pa.large_binary, pa.binary_view)}
Known = dict[str, Any]
"""The dictionaries of an array's columns by path, checked: its slices have the same ones."""


class NullRow(Exception):
    """A row is null, and an array cannot say so. `row` counts from the first one of the array."""

    def __init__(self, path: str, row: int) -> None:
        self.path = path
        self.row = row

    def error(self, row: int) -> ConfigError:
        """Return what the user is told; `row` counts from the first one of the source."""
        return ConfigError(
            f"{self.path} is null in row {row}, and an array cannot say so; fill it (fill_null) or "
            "drop the row in the source"
        )


def leaf(array: Any, known: Known, path: str = "the source", per_row: int = 1) -> Any:
    """Return the rows of an array: an array on its memory where Arrow allows, or a dict of these.

    Raises `ConfigError` if there is no leaf for its type. `path`: for messages. `per_row`: elements
    in each row of a column.
    """
    kind = array.type
    if kind.id in TEXT:
        if len(array):  # imported views of no rows are refused, although nothing is wrong
            checked(path, array.validate, full=True)
        return array.to_numpy(zero_copy_only=False)
    if kind.id in LISTS:
        return _lists(array, known, path)
    if isinstance(kind, pa.BaseExtensionType):
        rows = leaf(array.storage, known, path, per_row)
        return _tensors(rows, kind) if isinstance(kind, pa.FixedShapeTensorType) else rows
    if isinstance(kind, pa.DictionaryType):
        return _decoded(array, known, path, per_row)
    if array.null_count:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        raise NullRow(path, int(nulls.argmax()) // per_row)
    if kind.id in NUMBERS:
        return array.to_numpy()
    if isinstance(kind, pa.StructType):
        return _columns(array, known, path, per_row)
    if isinstance(kind, pa.FixedSizeListType):
        checked(path, array.validate)  # lists may have less than no elements
        begin, size = array.offset * kind.list_size, len(array) * kind.list_size
        values = array.values.slice(begin, size)
        rows = _numbers(values, known, path, per_row * kind.list_size)
        return rows.reshape(len(array), kind.list_size, *rows.shape[1:])
    if types.is_fixed_size_binary(kind):  # as uint8: a dtype of bytes would lose zeros at the end
        begin, size = array.offset * kind.byte_width, len(array) * kind.byte_width
        rows = np.frombuffer(memoryview(array.buffers()[1]).toreadonly(), "u1")
        return rows[begin : begin + size].reshape(len(array), kind.byte_width)
    if types.is_boolean(kind):
        return array.to_numpy(zero_copy_only=False)
    if not types.is_temporal(kind) or types.is_interval(kind):
        raise ConfigError(
            f"{path} has the Arrow type {kind}, for which there is no array; cast it in the source "
            "(decimals to float64, run-end encoded data and views of lists to plain ones), make "
            "columns of its parts, or drop it"
        )
    number = pa.int32() if kind.bit_width == 32 else pa.int64()
    unit = {pa.date32(): "D", pa.date64(): "ms"}.get(kind) or kind.unit
    is_date = types.is_date(kind) or types.is_timestamp(kind)  # in UTC, whatever its time zone
    dtype = f"M8[{unit}]" if is_date else f"m8[{unit}]"
    return array.view(number).to_numpy().astype("i8", copy=False).view(dtype)


def checked(path: str, call: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """Return what a function returns that refuses what would be read out of bounds."""
    try:
        return call(*given, **options)
    except (pa.ArrowException, IndexError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} has data that break the rules of Arrow: {error}; write them anew"
        ) from error


def _decoded(array: Any, known: Known, path: str, per_row: int) -> Any:
    kind, values = array.type.value_type, known.get(path)
    if values is None:
        if isinstance(kind, pa.StructType | pa.DictionaryType):
            raise ConfigError(
                f"{path} is dictionary-encoded with nested values; decode it in the source"
            )
        checked(path, array.dictionary.validate, full=True)
        values = array.dictionary
        if kind.id in TEXT:  # made once, and a None for nulls
            values = np.append(leaf(values, known, path), np.array([None]))
        known[path] = values
    if kind.id not in TEXT:
        return leaf(checked(path, values.take, array.indices), known, path, per_row)
    places = checked(path, array.indices.cast, pa.uint32()).fill_null(len(values) - 1)
    return checked(path, values.take, places.to_numpy())


def _columns(array: Any, known: Known, path: str, per_row: int) -> dict[str, Any]:
    # The root has no name: its columns are column 'a', and theirs column 'a.b'.
    begins = f"{path[:-1]}." if path.endswith("'") else "column '"
    columns: dict[str, Any] = {}
    names = checked(path, lambda: [field.name for field in array.type])
    for place, name in enumerate(names):
        if name in columns:
            raise ConfigError(f"{path} has two columns named '{name}'; rename one of them")
        columns[name] = leaf(array.field(place), known, f"{begins}{name}'", per_row)
    return columns


def _numbers(values: Any, known: Known, path: str, per_row: int = 1) -> Any:
    """Return the values of lists as an array."""
    rows = leaf(values, known, path, per_row)
    if isinstance(rows, dict) or rows.dtype == object or types.is_dictionary(values.type):
        raise ConfigError(
            f"{path} has lists of something else than numbers; make columns of their parts"
        )
    return rows


def _lists(array: Any, known: Known, path: str) -> Any:
    """Return lists of varying length as an array of arrays, and of None."""
    checked(path, array.validate, full=True)
    if array.null_count:
        made = np.full(len(array), None, object)
        made[array.is_valid().to_numpy(zero_copy_only=False)] = _lists(
            array.drop_null(), known, path
        )
        return made
    offsets = array.offsets.to_numpy()
    begin = int(offsets[0])
    try:
        values = _numbers(array.values.slice(begin, int(offsets[-1]) - begin), known, path)
    except NullRow:
        raise ConfigError(
            f"{path} has a null in a list; fill it in the source (in pyarrow, fill_null)"
        ) from None
    places = (offsets - begin).tolist()
    return np.fromiter(map(values.__getitem__, map(slice, places, places[1:])), object, len(array))


def _tensors(rows: Any, kind: Any) -> Any:
    shaped = rows.reshape(len(rows), *kind.shape)
    axes = kind.permutation
    return shaped if axes is None else shaped.transpose(0, *(axis + 1 for axis in axes))
