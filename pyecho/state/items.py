"""Items in a state: how they are saved, and how they fill the slots of a stage again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyecho._core import CheckpointError
from pyecho.items.nest import flatten, leaves_of
from pyecho.items.spec import Adapter, Field
from pyecho.state.plain import encoded
from pyecho.state.position import Unspent


class Part(NamedTuple):
    """Some items for the slots of a stage: a nest that holds them, perhaps among others."""

    nest: Any
    batched: bool  # it is a batch of items
    rows: Any  # of these, the ones that are wanted
    which: Any  # of the items of the snapshot, or of the plan, they are


def unspent_state(native: dict[str, Any], columns: list[Any], adapter: Adapter) -> dict[str, Any]:
    """Return items as a state holds them."""
    return {"numbers": adapter.saved(native.pop("numbers")), "columns": columns}


def references(items: list[Any], adapter: Adapter) -> list[Any]:
    """Return items, or leaves, that travel by reference as a state holds them."""
    return [encoded(item, adapter.saved) for item in items]


def examples_state(native: dict[str, Any], spec: Any, adapter: Adapter) -> dict[str, Any]:
    """Return the items of example echoing as a state holds them; `native`: of the stage."""
    columns = [_saved_column(column, adapter) for column in native.pop("columns")]
    found = {"checksum": native.pop("checksum"), "leaves": _leaves_of_spec(spec)}
    return unspent_state(native, columns, adapter) | found


def _saved_column(column: Any, adapter: Adapter) -> Any:
    if isinstance(column, tuple):  # of a leaf whose examples differ in size
        values, shapes = map(adapter.saved, column)
        return {"values": values, "shapes": shapes}
    return references(column, adapter) if isinstance(column, list) else adapter.saved(column)


def held_state(held: list[Any], spec: Any, adapter: Adapter) -> list[Any]:
    """Return examples that were read and not put, each as a list of its leaves."""
    _, structure = flatten(spec)
    return [references(structure.match(item), adapter) for item in held]


def held_nest(held: Any, spec: Any) -> Any:
    """Return such an example again."""
    leaves, structure = flatten(spec)
    if type(held) is not list or len(held) != len(leaves):
        raise CheckpointError(
            "the state holds items read ahead with other leaves than the source's items"
        )
    return structure.unflatten(held)


def parts_of_items(unspent: Unspent) -> list[Part]:
    """Return the items of batch echoing."""
    [column] = unspent.columns
    return [Part(column[index], False, [0], [which]) for which, index in enumerate(unspent.order)]


def parts_of_examples(unspent: Unspent, spec: Any) -> list[Part]:
    """Return the examples, as one batch; `CheckpointError` if they have other leaves."""
    fields, leaves = leaves_of(spec), _leaves_of_spec(spec)
    if leaves != unspent.leaves:
        raise CheckpointError(
            f"the items of the state have the leaves {unspent.leaves}, and the items of this "
            f"source {leaves}"
        )
    if len(unspent.columns) != len(fields):
        raise CheckpointError("the state has another number of columns than leaves")
    columns = [_rows_of(*each) for each in zip(unspent.columns, fields, strict=True)]
    count = len(unspent.numbers)
    if any(field.varies for field in fields):
        return [
            Part(_nest_of([column[index] for column in columns], spec), False, [0], [which])
            for which, index in enumerate(unspent.order)
        ]
    if count == 0:
        return []
    return [Part(_nest_of(columns, spec), True, unspent.order, np.arange(count))]


def _nest_of(leaves: list[Any], spec: Any) -> Any:
    return flatten(spec)[1].unflatten(leaves)


def _leaves_of_spec(spec: Any) -> list[str]:
    """Describe the leaves of an example."""
    fields = leaves_of(spec)
    return ["object" if field.by_reference else f"{field.dtype} {field.shape}" for field in fields]


def _rows_of(column: Any, field: Field) -> Any:
    """Return a column as an array, or list, of values of its leaf."""
    if field.by_reference:
        if not isinstance(column, list):
            raise CheckpointError("the state has no list of references")
        return column
    if field.varies:
        return _items_of(column, field)
    row_bytes = field.dtype.itemsize * math.prod(field.shape)
    if not isinstance(column, np.ndarray) or column.shape[1:] != (row_bytes,):
        raise CheckpointError("the state has rows of other sizes than its leaves")
    shape = (len(column), *field.shape)
    return column.view(field.dtype).reshape(shape) if column.size else np.empty(shape, field.dtype)


def _items_of(column: Any, field: Field) -> list[Any]:
    """Return the items of a leaf that differ in size."""
    items: list[Any] = []
    shapes = getattr(column, "shapes", np.empty((0, 0)))
    sizes = [field.dtype.itemsize * math.prod(shape) for shape in shapes.tolist()]
    if shapes.shape[1:] != (len(field.shape),) or sum(sizes) != len(column.values):
        raise CheckpointError("the state has rows of other sizes than its leaves")
    begin = 0
    for size, shape in zip(sizes, shapes.tolist(), strict=True):
        fixed = zip(field.shape, shape, strict=True)
        if not all(wanted in (None, extent) for wanted, extent in fixed):
            raise CheckpointError("the state has rows of other shapes than its leaves")
        item = column.values[begin : begin + size]
        try:
            empty = np.empty(shape, field.dtype) if not size else None
        except ValueError as error:  # too large, but for an extent of 0
            raise CheckpointError("the state has rows of other shapes than its leaves") from error
        items.append(item.view(field.dtype).reshape(shape) if empty is None else empty)
        begin += size
    return items


def refill(fill: Callable[[Any, bool, Any, Any], None], parts: list[Part], slots: Any) -> None:
    """Fill the slots of a plan that has come to its position.

    Parameters
    ----------
    fill
        ``fill(nest, batched, rows, slots)`` of a native stage.
    parts
        The items of the snapshot, or the ones that were read again.
    slots
        The slots of these items, as the stage tells them when it resumes.
    """
    if sum(len(part.which) for part in parts) != len(slots):
        raise CheckpointError("the source does not yield the items that the state refers to")
    for part in parts:
        # Arrays already: Ctrl-C within a conversion would become a TypeError of the binding.
        fill(part.nest, part.batched, np.asarray(part.rows, np.int64), slots[part.which])
