"""Batches taken apart into examples, and made of examples again, for `augment_example`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pyecho._core import SpecMismatch
from pyecho.items.nest import flatten, map_nest, node_of
from pyecho.items.sharing import own
from pyecho.items.spec import Adapter, Field, Padded, Ragged, refuse_masked


def examples_of(batch: Any, spec: Any) -> Iterator[Any]:
    """Yield the rows of a batch whose examples have this spec.

    Arrays are views of the batch, other objects copies, since they are those of other uses.
    """
    fields, structure = flatten(spec)
    columns = map(_rows_of, structure.match(batch), fields)
    yield from map(structure.unflatten, zip(*columns, strict=True))


def _rows_of(column: Any, field: Field) -> Iterable[Any]:
    """Return the rows of a leaf; of padded ones the part that is no padding."""
    if field.by_reference:
        return map(own, column)
    if isinstance(column, Ragged):
        return map(column.row, range(len(column.shapes)))
    if isinstance(column, Padded):
        varying = [axis for axis, extent in enumerate(field.shape) if extent is None]
        extents = np.asarray(column.lengths).reshape(-1, len(varying)).tolist()
        parts = [dict(zip(varying, each, strict=True)) for each in extents]
        axes = range(len(field.shape))
        return (
            row[tuple(slice(part.get(axis)) for axis in axes)]
            for row, part in zip(column.values, parts, strict=True)
        )
    return column  # type: ignore[no-any-return]


def batch_of(examples: list[Any], adapter: Adapter) -> Any:
    """Return a batch of examples that are alike, as a stage of the adapter makes it."""
    fields, structure = flatten(map_nest(adapter.field_of, examples[0]))
    decode = adapter.decoder(fields)
    try:
        rows = [structure.match(example) for example in examples]
    except SpecMismatch as error:
        raise _unlike(f"differ in their nest: {error}") from error
    columns = [
        _column(field, [row[place] for row in rows], place, adapter, decode)
        for place, field in enumerate(fields)
    ]
    return structure.unflatten(columns)


def _unlike(how: str) -> SpecMismatch:
    return SpecMismatch(
        f"augment_example must return examples that are alike, and two of a batch {how}"
    )


def _column(field: Field, leaves: list[Any], place: int, adapter: Adapter, decode: Any) -> Any:
    arrays = []
    for leaf in leaves:
        if node_of(leaf) is not None:
            raise _unlike(f"have a {type(leaf).__name__} and a leaf in the place of leaf {place}")
        array = adapter.as_array(leaf)
        if array is None or array.dtype.hasobject:
            if field.by_reference:
                continue
            array = np.asarray(leaf, adapter.field_of(leaf).dtype)
        refuse_masked(array)
        if (array.shape, array.dtype) != (field.shape, field.dtype):
            raise _unlike(
                f"have arrays of shapes {field.shape} and {array.shape} and dtypes {field.dtype} "
                f"and {array.dtype} in the place of leaf {place}; crop or pad them to one shape"
            )
        arrays.append(array)
    if field.by_reference:
        return leaves
    stacked = np.stack(arrays)
    return stacked if decode is None else decode(stacked, place)
