"""The option `ops`: which operations each leaf gets, and what the rows of a batch are then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pyecho import _core
from pyecho._core import ConfigError
from pyecho.items.nest import flatten
from pyecho.items.operation import ELEMENTS, Operation, Plain
from pyecho.items.ragged import by_leaf, indices_of
from pyecho.items.spec import Adapter, Field, is_bfloat16
from pyecho.warn import warn

Ops = Sequence[Operation] | Mapping[Any, Sequence[Operation]] | None

VARIABLE = 2**64 - 1
"""Stands for an extent that differs from item to item: ops::kVariable."""

WINDOW, RANDOM_CROP, TO_CHW = 0, 1, 10
"""Each an ops::Kind."""


class Row(NamedTuple):
    """How the rows of a leaf are made; None in its place if they are copies."""

    field: Field
    program: _core.Program


def checked_ops(ops: Any) -> Any:
    """Return a tuple of operations, or tuples by the names of leaves; else raise `ConfigError`."""
    lists = list(ops.values()) if isinstance(ops, Mapping) else [ops]
    for given in lists:
        if not isinstance(given, Sequence) or not all(isinstance(op, Operation) for op in given):
            raise ConfigError(
                "ops must be a list of operations from pyecho.ops, or a dict of such lists by leaf "
                f"(a name, or a tuple of names that share their draws), got {given!r}"
            )
    if not isinstance(ops, Mapping):
        return tuple(ops)
    keys = [tuple(map(str, key if isinstance(key, tuple) else (key,))) for key in ops]
    if len(set(map(frozenset, keys))) < len(keys):
        raise ConfigError(
            f"two keys of ops name the same leaves, got {list(ops)}; join their lists"
        )
    return dict(zip(keys, map(tuple, lists), strict=True))


def rows_with(ops: Ops, spec: Any, adapter: Adapter) -> tuple[list[Row | None], Any]:
    """Return how the rows of each leaf are made, and the spec of a row; no rows without `ops`."""
    if not ops:
        return [], spec
    fields, structure = flatten(spec)
    leaves = list(map(_Leaf, structure.names(), fields))
    names = [leaf.name for leaf in leaves]
    draws = 0
    keys: dict[int, tuple[str, ...]] = {}  # one with random places on a first axis of this extent
    for given, operations in by_leaf("ops", ops, fields, names).items():
        key = given if isinstance(given, tuple) else (given,)
        indexes = indices_of("ops", key, names)
        sharing = [leaves[index] for index in indexes]
        for place, leaf in enumerate(sharing):
            leaf.check()
            axes = len(leaf.field.shape)
            for number, operation in enumerate(operations, draws):
                leaf.operations.append(operation._plain(axes, key, place)._replace(draws=number))
            added = leaf.operations[len(leaf.operations) - len(operations) :]
            if any(each.kind in (WINDOW, RANDOM_CROP) and 0 in each.axes for each in added):
                other = keys.setdefault(leaf.field.shape[0], key)
                if leaf.field.shape[0] is not None and not {*other} & {*key}:
                    warn(
                        f"ops draw places of {list(other)} and {list(key)} apart, and their first "
                        f"axes are equally long ({leaf.field.shape[0]}); if they belong together, "
                        "name them in one key, with one ops.Window where parts differ in size"
                    )
        if len(sharing) > 1:
            _check_crops(sharing, len(operations))
        draws += len(operations)
    rows = [leaf.row(adapter) if leaf.operations else None for leaf in leaves]
    pairs = zip(fields, rows, strict=True)
    return rows, structure.unflatten([row.field if row else field for field, row in pairs])


class _Leaf:
    """A leaf of an example, and the operations on it."""

    def __init__(self, name: str, field: Field) -> None:
        self.name = name
        self.field = field
        self.operations: list[Plain] = []

    def check(self) -> None:
        """Raise `ConfigError` if operations cannot compute with it."""
        if self.field.by_reference:
            raise ConfigError(
                f"the leaf {self.name!r} travels by reference, and ops need an array; decode it in "
                "the source, or use augment="
            )

    def program(self, count: int) -> _core.Program:
        """Return the program of the first `count` operations; `ConfigError` if there is none."""
        field = self.field
        shape = [VARIABLE if extent is None else extent for extent in field.shape]
        element, item_bytes = _element_of(field.dtype), field.dtype.itemsize
        operations = [operation[:-1] for operation in self.operations[:count]]
        try:
            return _core.Program(element, item_bytes, shape, operations)
        except ConfigError as error:
            raise ConfigError(f"ops of the leaf {self.name!r}: {error}") from None

    def row(self, adapter: Adapter) -> Row:
        """Return the row that all operations make."""
        field, program = self.field, self.program(len(self.operations))
        dtype = field.dtype
        if program.element != _element_of(dtype):
            dtype = adapter.dtype_named(ELEMENTS[program.element])
        extents = tuple(None if extent == VARIABLE else extent for extent in program.shape)
        if self.operations[0].drops:
            last_first = self.operations[-1].kind == TO_CHW
            extents = self._without(self.operations[0].axes[0] + last_first, extents)
        if None in extents:
            return Row(Field(extents, dtype, field.max_bytes, field.pad), program)
        if field.pad is not None:
            raise ConfigError(
                f"ops make rows of one shape, {extents}, of the leaf {self.name!r}, whose Field "
                f"has pad={field.pad!r}; leave out one of the two"
            )
        return Row(Field(extents, dtype), program)

    def _without(self, axis: int, extents: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return extents without the axis of a Window of one offset."""
        if extents[axis] != 1 or None in extents:
            raise ConfigError(
                f"ops of the leaf {self.name!r}: Window with one offset leaves out its axis of "
                f"rows {extents}, which needs one element there and one size of all rows; pass "
                "offsets as a list, or have operations make one size"
            )
        return extents[:axis] + extents[axis + 1 :]


def _check_crops(leaves: list[_Leaf], count: int) -> None:
    """Raise `ConfigError` if crops among the last operations would be of different places."""
    for left in range(count, 0, -1):
        sizes = {}
        for leaf in leaves:
            operation = leaf.operations[-left]
            if operation.kind in (WINDOW, RANDOM_CROP):
                shape = leaf.program(len(leaf.operations) - left).shape
                sizes[leaf.name] = [shape[axis] for axis in operation.axes]
        if len(set(map(tuple, sizes.values()))) > 1:
            raise ConfigError(
                "RandomCrop and Window need leaves of the same size on their axes where they share "
                f"a place, got {sizes}; let the source bring them to one size"
            )


def _element_of(dtype: np.dtype[Any]) -> int:
    """Return the ops::Element of a dtype; what is no number has the one after the named ones."""
    name = "bfloat16" if is_bfloat16(dtype) else dtype.name
    known = dtype.isnative and name in ELEMENTS and dtype.shape == ()
    return ELEMENTS.index(name) if known else len(ELEMENTS)
