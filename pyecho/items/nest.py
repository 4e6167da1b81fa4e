"""Nests: what an item is made of, down to its leaves. Whatever walks an item walks it by this.

No walk is a function inside of another: that would be a cycle of references, which keeps items.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pyecho._core import ConfigError
from pyecho.items.nodes import Node, node_of
from pyecho.items.spec import NUMPY, Field

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


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


@bounded
def map_nest(function: Callable[[Any], Any], nest: Any) -> Any:
    """Return the nest with each leaf replaced by ``function(leaf)``; itself if none changes."""
    return _mapped(function, nest)


def _mapped(function: Callable[[Any], Any], nest: Any) -> Any:
    node = node_of(nest)
    if node is None:
        return function(nest)
    return _rebuilt(nest, node, [_mapped(function, child) for child in node.children])


@bounded
def map_paths(function: Callable[[str, Any], Any], nest: Any, path: str = "item") -> Any:
    """Do as `map_nest`, with a function of the leaf's path (such as item['x']) and the leaf."""
    node = node_of(nest)
    if node is None:
        return function(path, nest)
    parts = enumerate(node.children)
    children = [map_paths(function, child, path + node.step(place)) for place, child in parts]
    return _rebuilt(nest, node, children)


def _rebuilt(nest: Any, node: Node, children: list[Any]) -> Any:
    if children and all(map(operator.is_, children, node.children)):
        return nest
    return node.rebuild(children)


@bounded
def leaves_of(nest: Any) -> list[Any]:
    """Return the leaves of a nest, in order."""
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
def leaf_names(nest: Any) -> list[str]:
    """Return a name for each leaf, in order: its keys, joined by dots; "" for a leaf alone."""
    node = node_of(nest)
    if node is None:
        return [""]
    named = zip(node.keys, map(leaf_names, node.children), strict=True)
    return [f"{key}.{name}" if name else str(key) for key, names in named for name in names]


def leaves_like(like: Any, nest: Any) -> list[Any]:
    """Return what `nest` has where `like` has leaves, in order; `SpecMismatch` if it differs."""
    node = node_of(like)
    if node is None:
        return [nest]
    parts = zip(node.children, node.read(nest), strict=True)
    return [leaf for child, part in parts for leaf in leaves_like(child, part)]


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
