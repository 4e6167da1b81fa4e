"""Batches to be split (`unbatch=True`): how many rows they have, and how one row looks.

A batch is a nest of columns. An array is a column, also in a list or tuple. A list or tuple of one
object for each row is a column, and so is an array of strings or objects; their rows travel by
reference. A batch that can be read in two ways is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyecho._core import CheckpointError, ConfigError, SpecMismatch
from pyecho.items.nest import bounded, flatten, leaves_of, node_of
from pyecho.items.nodes import Node
from pyecho.items.spec import Adapter, Field


def rows_of(batch: Any) -> int:
    """Return the number of rows of a batch: the length of the outermost array."""
    level = [batch]
    met: dict[int, Any] = {}  # by id: a batch may contain itself
    while level:
        level = [part for part in level if id(part) not in met]
        met.update((id(part), part) for part in level)
        lengths = [length for length in map(_length, level) if length is not None]
        if lengths:
            return lengths[0]
        nodes = filter(None, map(node_of, level))
        level = [child for node in nodes for child in node.children]
    lists = any(node.is_list for node in filter(None, map(node_of, met.values())))
    if lists and any(isinstance(part, str | bytes) for part in met.values()):
        remedy = "a list of strings is a column beside an array; alone, make it one (np.asarray())"
    elif hasattr(batch, "columns"):  # a frame of pandas or Polars
        remedy = (
            "yield its columns as arrays ({name: frame[name].to_numpy() for name in "
            "frame.columns}), or pass one frame as the source"
        )
    elif lists:
        remedy = "make arrays of its lists of numbers (np.asarray())"
    else:
        remedy = "pass unbatch=False if the source yields single examples"
    raise ConfigError(
        "unbatch=True needs items with at least one array that has a batch axis, got "
        f"{type(batch).__name__}; {remedy}"
    )


@bounded
def row_spec(
    batch: Any, adapter: Adapter, lists: Sequence[bool] | None = None
) -> tuple[Any, tuple[bool, ...]]:
    """Return the spec of one row, and for each list in the batch whether it is a column.

    The number of rows may not tell, so a run that goes on passes the `lists` that it began with.
    Raises `ConfigError` if a batch cannot be split, or in two ways, `CheckpointError` if its lists
    are others.
    """
    split = _Split(rows_of(batch), adapter, lists)
    if lists is None:
        _refuse_examples(batch, adapter)
    spec = split.row_spec(batch, "item", is_batch=True)
    if lists is not None and len(split.are_columns) < len(lists):
        raise _other_lists("item")
    return spec, tuple(split.are_columns)


class _Split:
    """One batch on its way to the spec of a row, from the outermost node to the leaves."""

    def __init__(self, rows: int, adapter: Adapter, known: Sequence[bool] | None) -> None:
        self.rows = rows
        self.adapter = adapter
        self.known = known  # for each list whether it is a column, in a run that goes on
        self.are_columns: list[bool] = []  # the same, of the lists so far

    def row_spec(self, part: Any, path: str, *, is_batch: bool = False) -> Any:
        node = node_of(part)
        if node is None:
            return _row_field(part, path, self.adapter)
        if node.is_list and not is_batch:
            self.are_columns.append(self._is_column(node, path))
            if self.are_columns[-1]:
                return Field((), object)
        children = enumerate(node.children)
        return node.rebuild(
            [self.row_spec(child, path + node.step(place)) for place, child in children]
        )

    def _is_column(self, node: Node, path: str) -> bool:
        """Return whether a list is a column; raise if it is neither, both, or not what is known."""
        rows, size = self.rows, len(node.children)
        column, nest = _may_be_column(node, rows), _may_be_nest(node, rows)
        if self.known is not None:
            known = list(self.known[len(self.are_columns) :])
            if not known or not (column if known[0] else nest or not size):
                raise _other_lists(path)
            return known[0]
        if column and nest and any(node_of(child) is not None for child in node.children):
            raise ConfigError(
                f"{path}: the {node.name} may be a column of {rows} rows, or a nest of {rows} "
                f"parts with {rows} rows each; make an array of a column, and a dict or namedtuple "
                "of a nest"
            )
        is_other = size and not column and not nest
        if is_other and all(_length(leaf) is None for leaf in leaves_of(node.like)):
            raise ConfigError(
                f"{path}: unbatch=True cannot split a {node.name} of {size} into {rows} rows; a "
                "column needs one object for each row"
            )
        return column and not nest


def _other_lists(path: str) -> CheckpointError:
    return CheckpointError(
        f"{path}: the lists in a batch of the source are not those of the state: others of them "
        "are columns"
    )


@bounded
def first_rows(batch: Any, count: int) -> Any:
    """Return the first rows of a batch that can be split; arrays are views."""
    rows, node = rows_of(batch), node_of(batch)
    if node is None:
        return batch[:count]
    return node.rebuild([_first_of(child, count, rows) for child in node.children])


def _first_of(part: Any, count: int, rows: int) -> Any:
    """Return the first rows of a part of a batch that has so many in all."""
    node = node_of(part)
    if node is None or (_may_be_column(node, rows) and not _may_be_nest(node, rows)):
        return part[:count]
    return node.rebuild([_first_of(child, count, rows) for child in node.children])


def _length(leaf: Any) -> int | None:
    """Return the length of the batch axis; None if `leaf` is no array or has no axes."""
    return leaf.shape[0] if hasattr(type(leaf), "__dlpack__") and len(leaf.shape) > 0 else None


def _may_be_column(node: Node, rows: int) -> bool:
    """Return True if a node is a list or tuple without names of one object for each row."""
    return node.is_list and len(node.children) == rows


def _may_be_nest(node: Node, rows: int) -> bool:
    """Return True if each part of a node could be split into rows."""
    return bool(node.children) and all(_splits(child, rows) for child in node.children)


def _splits(value: Any, rows: int) -> bool:
    node = node_of(value)
    if node is None:
        return _length(value) == rows
    return _may_be_column(node, rows) or _may_be_nest(node, rows)


def _row_field(leaf: Any, path: str, adapter: Adapter) -> Field:
    if isinstance(leaf, np.ndarray) and leaf.ndim == 1 and leaf.dtype.kind in "OSTU":
        return Field((), object)
    field = adapter.field_of(leaf)
    if not field.shape:
        raise ConfigError(
            f"{path}: unbatch=True cannot split a leaf of type {type(leaf).__name__} into rows; "
            "give it a batch axis, or drop it in the source"
        )
    return Field(field.shape[1:], field.dtype)


def _refuse_examples(batch: Any, adapter: Adapter) -> None:
    """Raise `ConfigError` for a list of nests that are all alike, as a list of examples is."""
    node = node_of(batch)
    if node is None or not node.is_list or len(batch) < 2 or node_of(batch[0]) is None:
        return
    leaves, structure = flatten(batch[0])
    kinds = [_kind_of(leaf, adapter) for leaf in leaves]
    with contextlib.suppress(SpecMismatch):
        for other in batch[1:]:
            if kinds != [_kind_of(leaf, adapter) for leaf in structure.match(other)]:
                return
        raise ConfigError(
            f"item: the {node.name} of {len(batch)} nests that are all alike may be {len(batch)} "
            "examples; yield examples one by one and leave out unbatch, or make a dict or "
            "namedtuple of columns"
        )


def _kind_of(leaf: Any, adapter: Adapter) -> Any:
    """Return the dtype and the number of axes of a leaf; None for a nest."""
    if node_of(leaf) is not None:
        return None
    field = adapter.field_of(leaf)
    return field.dtype, len(field.shape)
