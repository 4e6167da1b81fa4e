"""Nests: what an item is made of, down to its leaves. Whatever walks an item walks it by this.

A nest is an array, number or other object (a leaf), or a node of nests: a dict, list, tuple,
namedtuple, `Mapping`, dataclass instance, TensorDict, or an instance of a type that is registered
with `register_node` or with optree.

No walk is a function inside of another: that would be a cycle of references, which keeps items.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pyecho._core import ConfigError, SpecMismatch
from pyecho.items.nodes import (
    ATOMS,
    DataclassNode,
    ListNode,
    MappingNode,
    NamedTupleNode,
    Node,
    RegisteredNode,
    TupleNode,
    is_registered,
)
from pyecho.items.spec import NUMPY, Field, is_tensor_dict
from pyecho.items.tensordicts import TensorDictNode

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_BUILTIN = (dict, list, tuple)


def node_of(value: Any) -> Node | None:
    """Describe a node of a nest; None if `value` is a leaf."""
    kind: Any = type(value)
    if issubclass(kind, _BUILTIN):
        if issubclass(kind, dict):
            return MappingNode(value, tuple(dict.keys(value)))
        if issubclass(kind, list):
            return ListNode(value, range(len(value)))
        if hasattr(kind, "_fields"):
            return NamedTupleNode(value, kind._fields)
        return TupleNode(value, range(len(value)))
    if issubclass(kind, ATOMS) or hasattr(kind, "__dlpack__"):
        return None
    if is_registered(value):
        registered = RegisteredNode(value)
        return registered if registered.children else None  # without children: a constant
    if issubclass(kind, Node):
        return value  # type: ignore[no-any-return]  # in a spec, where it stands for a TensorDict
    is_mapping = issubclass(kind, Mapping)
    if not (is_mapping or hasattr(kind, "__dataclass_fields__")):
        return None
    if is_tensor_dict(value):
        return TensorDictNode(value)
    if is_mapping:
        return MappingNode(value, tuple(value))
    fields = dataclasses.fields(kind)
    return DataclassNode(value, [field.name for field in fields if hasattr(value, field.name)])


def bounded(walk: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Have a recursive walk raise `ConfigError` if a nest is too deep, or contains itself."""

    @wraps(walk)
    def checked(*args: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        try:
            return walk(*args, **named)
        except RecursionError:
            raise ConfigError(
                "an item contains itself, or is nested too deep; yield items without such a part"
            ) from None

    return checked


class Structure:
    """A nest without its leaves; made by `flatten`. Holds the nest that it was made of."""

    __slots__ = ("_nest", "_node", "_parts")

    def __init__(self, nest: Any, node: Node | None, parts: list[Structure]) -> None:
        self._nest = nest
        self._node = node  # None for a leaf, which has no parts
        self._parts = parts

    @bounded
    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Return a nest with other leaves; of a node whose children stay the same, itself."""
        return self._nest_of(iter(leaves))

    def _nest_of(self, leaves: Iterator[Any]) -> Any:
        node = self._node
        if node is None:
            return next(leaves)
        return _rebuilt(self._nest, node, [part._nest_of(leaves) for part in self._parts])

    def match(self, nest: Any) -> list[Any]:
        """Return what a nest has in the places of the leaves; `SpecMismatch` names the place.

        Only the nodes must be alike: where this has a leaf, the other may have anything.
        """
        leaves: list[Any] = []
        self._collect(nest, leaves, "item")
        return leaves

    def _collect(self, nest: Any, leaves: list[Any], path: str) -> None:
        node = self._node
        if node is None:
            leaves.append(nest)
            return
        try:
            children = node.read(nest)
        except SpecMismatch as error:
            raise SpecMismatch(f"{path}: {error}") from None
        for place, (part, child) in enumerate(zip(self._parts, children, strict=True)):
            part._collect(child, leaves, path + node.step(place))

    def paths(self, path: str = "item") -> list[str]:
        """Return how messages name each leaf, in order: item['x'][0]."""
        node = self._node
        if node is None:
            return [path]
        parts = enumerate(self._parts)
        return [leaf for place, part in parts for leaf in part.paths(path + node.step(place))]

    def names(self) -> list[str]:
        """Return how options name each leaf: its keys, joined by dots; "" for a leaf alone."""
        if self._node is None:
            return [""]
        named = zip(self._node.keys, self._parts, strict=True)
        return [
            f"{key}.{name}" if name else str(key) for key, part in named for name in part.names()
        ]


_LEAF = Structure(None, None, [])


@bounded
def flatten(nest: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of a nest, in order, and its structure."""
    leaves: list[Any] = []
    return leaves, _structure_of(nest, leaves)


def _structure_of(nest: Any, leaves: list[Any]) -> Structure:
    node = node_of(nest)
    if node is None:
        leaves.append(nest)
        return _LEAF
    return Structure(nest, node, [_structure_of(child, leaves) for child in node.children])


@bounded
def leaves_of(nest: Any) -> list[Any]:
    """Return the leaves of a nest, in order: the first half of `flatten`, in less time."""
    leaves: list[Any] = []
    _collect(nest, leaves)
    return leaves


def _collect(nest: Any, leaves: list[Any]) -> None:
    node = node_of(nest)
    if node is None:
        leaves.append(nest)
    else:
        for child in node.children:
            _collect(child, leaves)


@bounded
def map_nest(function: Callable[[Any], Any], nest: Any) -> Any:
    """Return the nest with each leaf replaced by ``function(leaf)``; itself if none changes."""
    return _mapped(function, nest)


def _mapped(function: Callable[[Any], Any], nest: Any) -> Any:
    node = node_of(nest)
    if node is None:
        return function(nest)
    return _rebuilt(nest, node, [_mapped(function, child) for child in node.children])


def _rebuilt(nest: Any, node: Node, children: list[Any]) -> Any:
    if children and all(map(operator.is_, children, node.children)):
        return nest
    return node.rebuild(children)


def spec_of(example: Any) -> Any:
    """Return the spec of an example: the same nest, with a `Field` for each leaf.

    Parameters
    ----------
    example
        An array, tensor, number, or any nest of dict, list, tuple, namedtuple, `Mapping`,
        dataclass, TensorDict and registered node (`register_node`) of them. Leaves of other kinds
        (str, bytes, objects) become ``Field((), object)``; if they come of an example, arrays are
        refused instead of them.
    """
    return map_nest(NUMPY.field_of, example)


def fields_of(spec: Any) -> list[Field]:
    """Return the leaves of a spec; raises `ConfigError` if it is not a nest of `Field`."""
    fields = leaves_of(spec)
    for leaf in fields:
        if not isinstance(leaf, Field):
            raise ConfigError(
                "a spec is a nest of pyecho.Field, as spec_of(example) returns it, "
                f"but it has a leaf of type {type(leaf).__name__}"
            )
    if not fields:
        raise ConfigError(
            "a spec, and an item to make batches of, needs at least one leaf (an array, number, "
            "str or other object), got an empty nest"
        )
    return fields
