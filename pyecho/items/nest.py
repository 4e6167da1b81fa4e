"""Nests: what an item is made of, down to its leaves. Whatever walks an item walks it by this.

A nest is an array, number or other object (a leaf), or a node of nests: a dict, list, tuple,
namedtuple, `Mapping`, dataclass instance, TensorDict, or an instance of a type that is registered
with `register_node` or with optree.

No walk is a function inside of another: that would be a cycle of references, which keeps items.
"""

from __future__ import annotations

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
    is_registered,
)
from pyecho.items.spec import NUMPY, Field, is_tensor_dict
from pyecho.items.tensordicts import TensorDictNode

_SEQUENCES = (list, tuple)

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def node_of(value: Any) -> Node | None:
    """Describe a node of a nest; None if `value` is a leaf."""
    kind: Any = type(value)
    if issubclass(kind, dict):
        return MappingNode(value)
    if issubclass(kind, _SEQUENCES):
        is_named = hasattr(kind, "_fields") and not issubclass(kind, list)
        return NamedTupleNode(value) if is_named else ListNode(value)
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
    return MappingNode(value) if is_mapping else DataclassNode(value)


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

    __slots__ = ("_root",)

    def __init__(self, root: Node | None) -> None:
        self._root = root  # None for a leaf alone

    @bounded
    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Return a nest with other leaves; of a node whose children stay the same, itself."""
        return _unflatten(self._root, iter(leaves))

    def match(self, nest: Any) -> list[Any]:
        """Return what a nest has in the places of the leaves; `SpecMismatch` names the place.

        Only the nodes must be alike: where this has a leaf, the other may have anything.
        """
        leaves: list[Any] = []
        _match(self._root, nest, leaves, "item")
        return leaves

    def paths(self) -> list[str]:
        """Return how messages name each leaf, in order: item['x'][0]."""
        return [path for path, _ in _places(self._root, "item", "")]

    def nodes(self) -> list[Node]:
        """Return all nodes, each before its parts."""
        nodes = [] if self._root is None else [self._root]
        for node in nodes:
            nodes += [part for part in node.parts if part is not None]
        return nodes

    def names(self) -> list[str]:
        """Return how options name each leaf: its keys, joined by dots; "" for a leaf alone."""
        return [name for _, name in _places(self._root, "item", "")]


@bounded
def flatten(nest: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of a nest, in order, and its structure."""
    leaves: list[Any] = []
    return leaves, Structure(_flatten(nest, leaves))


def leaves_of(nest: Any) -> list[Any]:
    """Return the leaves of a nest, in order."""
    return flatten(nest)[0]


def map_nest(function: Callable[[Any], Any], nest: Any) -> Any:
    """Return the nest with each leaf replaced by ``function(leaf)``; itself if none changes."""
    leaves, structure = flatten(nest)
    return structure.unflatten(map(function, leaves))


def _flatten(nest: Any, leaves: list[Any]) -> Node | None:
    node = node_of(nest)
    if node is None:
        leaves.append(nest)
    else:
        node.parts = [_flatten(child, leaves) for child in node.children]
    return node


def _unflatten(node: Node | None, leaves: Iterator[Any]) -> Any:
    if node is None:
        return next(leaves)
    children = [_unflatten(part, leaves) for part in node.parts]
    if children and all(map(operator.is_, children, node.children)):
        return node if node.like is None else node.like
    return node.rebuild(children)


def _match(node: Node | None, nest: Any, leaves: list[Any], path: str) -> None:
    if node is None:
        leaves.append(nest)
        return
    try:
        children = node.read(nest)
    except SpecMismatch as error:
        raise SpecMismatch(f"{path}: {error}") from None
    for place, (part, child) in enumerate(zip(node.parts, children, strict=True)):
        _match(part, child, leaves, path + node.step(place))


def _places(node: Node | None, path: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each leaf."""
    if node is None:
        yield path, name
        return
    for place, (key, part) in enumerate(zip(node.keys, node.parts, strict=True)):
        yield from _places(part, path + node.step(place), f"{name}.{key}" if name else str(key))


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
