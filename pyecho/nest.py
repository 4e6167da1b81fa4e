"""Nests: what an item is made of, down to its leaves. Whatever walks an item walks it by this.

A node is a dict, list, tuple, namedtuple, `Mapping` or dataclass instance, or an instance of a type
that is registered as a pytree node with `torch.utils._pytree` or `optree`, if the program has
imported one of them. Everything else is a leaf.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pyecho.nodes import (
    DictNode,
    FieldsNode,
    ListNode,
    MappingNode,
    NamedTupleNode,
    Node,
    TupleNode,
    registered_node,
)

leaf_types: set[type] = set()
"""Types whose instances are leaves although they look like nodes."""

_ATOMS = (str, bytes, int, float, complex, type(None), np.ndarray, np.generic)


def node_of(value: Any) -> Node | None:
    """Describe a node of a nest; None if `value` is a leaf."""
    kind: Any = type(value)
    if issubclass(kind, dict):
        return DictNode(value, tuple(dict.keys(value)))
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return NamedTupleNode(value, kind._fields)
    if issubclass(kind, list | tuple):
        return (ListNode if issubclass(kind, list) else TupleNode)(value, range(len(value)))
    if issubclass(kind, _ATOMS) or kind in leaf_types or hasattr(kind, "__dlpack__"):
        return None
    registered = registered_node(value)
    if registered is not None:
        return registered if registered.children else None  # without children: a constant
    if issubclass(kind, Mapping):
        return MappingNode(value, tuple(value))
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind) if hasattr(value, field.name)]
        return FieldsNode(value, names)
    return None


def map_nest(function: Callable[[Any], Any], nest: Any) -> Any:
    """Return the nest with each leaf replaced by ``function(leaf)``; itself if none changes."""
    node = node_of(nest)
    if node is None:
        return function(nest)
    children = [map_nest(function, child) for child in node.children]
    if children and all(map(operator.is_, children, node.children)):
        return nest
    return node.rebuild(children)


def leaves_of(nest: Any) -> list[Any]:
    """Return the leaves of a nest, in order."""
    node = node_of(nest)
    if node is None:
        return [nest]
    return [leaf for child in node.children for leaf in leaves_of(child)]


def leaves_like(like: Any, nest: Any) -> list[Any]:
    """Return what `nest` has where `like` has leaves, in the order of `like`."""
    node = node_of(like)
    if node is None:
        return [nest]
    parts = zip(node.children, node.read(nest), strict=True)
    return [leaf for child, part in parts for leaf in leaves_like(child, part)]
