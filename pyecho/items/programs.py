"""The option `ops`: which operations each leaf gets, and what the rows of a batch are then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pyecho import _core
from pyecho._core import ConfigError
from pyecho.items.nest import leaf_names, leaves_of, map_nest
from pyecho.items.operation import ELEMENTS, Operation, Plain
from pyecho.items.ragged import by_leaf, indices_of
from pyecho.items.spec import BFLOAT16, Adapter, Field

Ops = Sequence[Operation] | Mapping[Any, Sequence[Operation]] | None

VARIABLE = 2**64 - 1
"""Stands for an extent that differs from item to item: ops::kVariable."""

RANDOM_CROP = 0
"""An ops::Kind."""

Row = tuple[Field, _core.Program] | None
"""The field of the rows of a leaf, and the program that makes them; None: rows are copies."""


def checked_ops(ops: Any) -> Any:
    """Return a tuple of operations, or tuples by the names of leaves; else raise `ConfigError`."""
    lists = list(ops.values()) if isinstance(ops, Mapping) else [ops]
    for each in lists:
        if not isinstance(each, Sequence) or not all(isinstance(op, Operation) for op in each):
            raise ConfigError(
                "ops must be a list of operations from pyecho.ops, or a dict of such lists by leaf "
                f"(a name, or a tuple of names that share their draws), got {each!r}"
            )
    if not isinstance(ops, Mapping):
        return tuple(ops)
    keys = [tuple(map(str, key if isinstance(key, tuple) else (key,))) for key in ops]
    if len(set(map(frozenset, keys))) < len(keys):
        raise ConfigError(
            f"two keys of ops name the same leaves, got {list(ops)}; join their lists"
        )
    return dict(zip(keys, map(tuple, lists), strict=True))


def rows_with(ops: Ops, spec: Any, adapter: Adapter) -> tuple[list[Row], Any]:
    """Return how the rows of each leaf are made, and the spec of a row; no rows without `ops`."""
    if not ops:
        return [], spec
    fields, names = leaves_of(spec), leaf_names(spec)
    found: dict[int, list[Plain]] = {}
    draws = 0
    for key, operations in by_leaf("ops", ops, fields, names).items():
        leaves = indices_of("ops", key if isinstance(key, tuple) else (key,), names)
        for place, index in enumerate(leaves):
            axes = len(fields[index].shape)
            of_leaf = found.setdefault(index, [])
            for number, operation in enumerate(operations, draws):
                of_leaf.append(operation._plain(axes, place)._replace(draws=number))
        if len(leaves) > 1:
            made = [(names[index], fields[index], found[index]) for index in leaves]
            _check_crops(made, len(operations))
        draws += len(operations)
    rows: list[Row] = [None] * len(fields)
    for index, plain in found.items():
        rows[index] = _row_of(names[index], fields[index], plain, adapter)
    of_rows = iter(
        [field if row is None else row[0] for field, row in zip(fields, rows, strict=True)]
    )
    return rows, map_nest(lambda _: next(of_rows), spec)


def _check_crops(made: list[tuple[str, Field, list[Plain]]], count: int) -> None:
    """Raise `ConfigError` if crops among the last operations would be of different places."""
    for left in range(count, 0, -1):
        sizes = {}
        for name, field, plain in made:
            if plain[-left].kind == RANDOM_CROP:
                shape = _program_of(name, field, plain[:-left]).shape
                sizes[name] = [shape[axis] for axis in plain[-left].axes]
        if len(set(map(tuple, sizes.values()))) > 1:
            raise ConfigError(
                "RandomCrop needs leaves of the same size on its axes where they share its draws, "
                f"got {sizes}; resize them to one size first, or give each a key of its own"
            )


def _row_of(name: str, field: Field, plain: list[Plain], adapter: Adapter) -> Row:
    made = _program_of(name, field, plain)
    dtype = field.dtype
    if made.element != _element_of(dtype):
        dtype = adapter.dtype_named(ELEMENTS[made.element])
    extents = tuple(None if extent == VARIABLE else extent for extent in made.shape)
    if None in extents:
        return Field(extents, dtype, field.max_bytes, field.pad), made
    if field.pad is not None:
        raise ConfigError(
            f"ops make rows of one shape, {extents}, of the leaf {name!r}, whose Field has "
            f"pad={field.pad!r}; leave out one of the two"
        )
    return Field(extents, dtype), made


def _program_of(name: str, field: Field, plain: list[Plain]) -> _core.Program:
    if field.by_reference:
        raise ConfigError(
            f"the leaf {name!r} travels by reference, and ops need an array; decode it in the "
            "source, or use augment="
        )
    shape = [VARIABLE if extent is None else extent for extent in field.shape]
    try:
        return _core.Program(_element_of(field.dtype), field.dtype.itemsize, shape, plain)
    except ConfigError as error:
        raise ConfigError(f"ops of the leaf {name!r}: {error}") from None


def _element_of(dtype: np.dtype[Any]) -> int:
    """Return the ops::Element of a dtype; what is no number has the one after the named ones."""
    name = "bfloat16" if dtype == BFLOAT16 else dtype.name
    known = dtype.isnative and name in ELEMENTS and dtype.shape == ()
    return ELEMENTS.index(name) if known else len(ELEMENTS)
