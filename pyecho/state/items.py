"""Items in a state: how they are saved, and how they fill the slots of a stage again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyecho._core import CheckpointError
from pyecho.items.nest import flatten
from pyecho.items.spec import Adapter, Field
from pyecho.state.plain import encoded
from pyecho.state.position import Unspent


class Part(NamedTuple):
    """Some items for the slots of a stage: a nest that holds them, perhaps among others."""

    nest: Any
    batched: bool  # it is a batch of items
    rows: Any  # of these, the ones that are wanted
    which: Any  # of the items of the snapshot, or of the plan, they are


class References:
    """Items of batch echoing, which travel by reference: in one column of a state.

    `to_host`: returns an item as a state holds it, of one that may be on a device.
    """

    def __init__(self, adapter: Adapter, to_host: Callable[[Any], Any] | None = None) -> None:
        self._saved = adapter.saved
        self._to_host = to_host or (lambda item: item)

    def held(self, items: list[Any]) -> list[Any]:
        """Return items that were read and not put, as a state holds them."""
        return [encoded(item, self._saved) for item in items]

    def whole(self, held: Any) -> Any:
        """Return such an item again."""
        return held

    def unspent(self, native: dict[str, Any]) -> dict[str, Any]:
        """Return the items of a stage as a state holds them; `native`: its ``_state``."""
        [items] = native.pop("columns")
        numbers = self._saved(native.pop("numbers"))
        return {"numbers": numbers, "columns": [self.held(list(map(self._to_host, items)))]}

    def parts(self, unspent: Unspent) -> list[Part]:
        """Return the items of a state."""
        [column] = unspent.columns
        places = enumerate(unspent.order)
        return [Part(column[index], False, [0], [which]) for which, index in places]


class Columns:
    """Examples with this spec: in a column of a state for each leaf. See `References`."""

    def __init__(self, adapter: Adapter, spec: Any) -> None:
        self._saved = adapter.saved
        self._fields, self._structure = flatten(spec)
        self._leaves = [
            "object" if field.by_reference else f"{field.dtype} {field.shape}"
            for field in self._fields
        ]

    def held(self, items: list[Any]) -> list[Any]:
        """Return each example as a list of its leaves."""
        return [self._references(self._structure.match(item)) for item in items]

    def whole(self, held: Any) -> Any:
        """Return such an example again."""
        if type(held) is not list or len(held) != len(self._fields):
            raise CheckpointError(
                "the state holds items read ahead with other leaves than the source's items"
            )
        return self._structure.unflatten(held)

    def unspent(self, native: dict[str, Any]) -> dict[str, Any]:
        """Return the examples of a stage as a state holds them."""
        return {
            "numbers": self._saved(native.pop("numbers")),
            "columns": [self._column(column) for column in native.pop("columns")],
            "checksum": native.pop("checksum"),
            "leaves": self._leaves,
        }

    def parts(self, unspent: Unspent) -> list[Part]:
        """Return the examples, as one batch; `CheckpointError` if they have other leaves."""
        if self._leaves != unspent.leaves:
            raise CheckpointError(
                f"the items of the state have the leaves {unspent.leaves}, and the items of this "
                f"source {self._leaves}"
            )
        if len(unspent.columns) != len(self._fields):
            raise CheckpointError("the state has another number of columns than leaves")
        columns = list(map(_rows_of, unspent.columns, self._fields))
        nest_of, count = self._structure.unflatten, len(unspent.numbers)
        if any(field.varies for field in self._fields):
            return [
                Part(nest_of([column[index] for column in columns]), False, [0], [which])
                for which, index in enumerate(unspent.order)
            ]
        if count == 0:
            return []
        return [Part(nest_of(columns), True, unspent.order, np.arange(count))]

    def _references(self, leaves: list[Any]) -> list[Any]:
        return [encoded(leaf, self._saved) for leaf in leaves]

    def _column(self, column: Any) -> Any:
        if isinstance(column, tuple):  # of a leaf whose examples differ in size
            values, shapes = map(self._saved, column)
            return {"values": values, "shapes": shapes}
        return self._references(column) if isinstance(column, list) else self._saved(column)


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
