"""Datasets of Ray Data, whose blocks are read where they lie in Ray's object store."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pyecho._core import ConfigError
from pyecho.source.arrow import Arrow, arrays_of
from pyecho.source.reader import Chained

TENSORS = ("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2")
OBJECTS = "ray.data.arrow_pickled_object"
"""Names of Ray's own types of columns."""


class RayData(Arrow):
    """A dataset of Ray Data, or a worker's shard of one: read block by block."""

    def _length(self) -> int | None:
        known = isinstance(self.object, sys.modules["ray.data.dataset"].MaterializedDataset)
        return self.object.count() if known and self._by_row else None  # it has been computed

    def _arrays(self) -> Iterator[Any]:
        return Chained(ray_tables(self.object), lambda table: arrays_of(plain_table(table)))


def ray_tables(source: Any) -> Iterator[Any]:
    """Return an iterator over the blocks as tables of pyarrow.

    Not as NumPy's arrays: Ray would copy what a block holds in several chunks into one.
    """
    return iter(source.iter_batches(batch_size=None, batch_format="pyarrow"))


def plain_table(table: Any) -> Any:
    """Return a table with Arrow's own types instead of Ray's, on the same memory."""
    for place, name in enumerate(table.column_names):
        table = table.set_column(place, name, _plain(table[name], name))
    return table


def _plain(column: Any, name: str) -> Any:
    """Return a column as one of Arrow's own types, on the same memory."""
    kind = getattr(column.type, "extension_name", None)
    if kind == OBJECTS:
        raise ConfigError(
            f"column {name!r} of the dataset holds pickled Python objects; let map_batches() make "
            "arrays of numbers or texts of them, or drop_columns() leave it out"
        )
    if kind not in TENSORS:
        return column
    if column.null_count:
        raise ConfigError(f"column {name!r} of the dataset lacks tensors; filter such rows out")
    kind, size = column.type.value_type, math.prod(column.type.shape)
    plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_temporal)
    if size == 0 or not any(is_plain(kind) for is_plain in plain):
        raise ConfigError(
            f"column {name!r} of the dataset holds tensors of {size} {kind} each; needed are "
            "numbers, at least one each: drop_columns() leaves it out"
        )
    whole = pa.FixedSizeListArray.from_arrays
    tensors = pa.fixed_shape_tensor(column.type.value_type, column.type.shape)
    parts = [whole(chunk.storage.flatten(), size) for chunk in column.chunks]
    return pa.chunked_array(
        [pa.ExtensionArray.from_storage(tensors, part) for part in parts], tensors
    )
