"""Batches taken apart into examples, and made of examples again, for `augment_example`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pyecho._core import SpecMismatch
from pyecho.items.nest import leaves_like, leaves_of, map_nest
from pyecho.items.spec import Adapter, Field


def examples_of(batch: Any, spec: Any) -> Iterator[Any]:
    """Yield the rows of a batch whose examples have this spec; arrays are views."""
    columns = leaves_like(spec, batch)
    for row in zip(*columns, strict=True):
        leaves = iter(row)
        yield map_nest(lambda _, leaves=leaves: next(leaves), spec)  # type: ignore[misc]


def batch_of(examples: list[Any], adapter: Adapter) -> Any:
    """Return a batch of examples that are alike, as a stage of the adapter makes it."""
    spec = map_nest(adapter.field_of, examples[0])
    fields = leaves_of(spec)
    decode = adapter.decoder(fields)
    rows = [_leaves_like(spec, example) for example in examples]
    columns = iter(
        [
            _column(field, [row[place] for row in rows], place, adapter, decode)
            for place, field in enumerate(fields)
        ]
    )
    return map_nest(lambda _: next(columns), spec)


def _leaves_like(spec: Any, example: Any) -> list[Any]:
    try:
        return leaves_like(spec, example)
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise SpecMismatch(
            "augment_example must return examples that are alike, and two of a batch differ in "
            f"their nest ({error})"
        ) from error


def _column(field: Field, leaves: list[Any], place: int, adapter: Adapter, decode: Any) -> Any:
    if field.by_reference:
        return leaves
    arrays = []
    for leaf in leaves:
        array = adapter.as_array(leaf)
        array = np.asarray(leaf, field.dtype) if array is None else array
        if (array.shape, array.dtype) != (field.shape, field.dtype):
            raise SpecMismatch(
                "augment_example must return examples that are alike, and two of a batch have "
                f"arrays of shapes {field.shape} and {array.shape} and dtypes {field.dtype} and "
                f"{array.dtype} in the place of leaf {place}; crop or pad them to one shape"
            )
        arrays.append(array)
    stacked = np.stack(arrays)
    return stacked if decode is None else decode(stacked, place)
