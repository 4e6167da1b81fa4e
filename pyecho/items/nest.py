"""Nests: what an item is made of, down to its leaves. Whatever walks an item walks it by this."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pyecho._core import ConfigError
from pyecho.items.node import Node
from pyecho.items.nodes import node_of

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


@bounded
def map_paths(function: Callable[[str, Any], Any], nest: Any) -> Any:
    """Do as `map_nest`, with a function of the leaf's path (such as item['x']) and the leaf."""
    return _mapped_with_paths(function, nest, "item")


@bounded
def leaves_of(nest: Any) -> list[Any]:
    """Return the leaves of a nest, in order."""
    leaves: list[Any] = []
    _collect(nest, leaves)
    return leaves


def leaves_like(like: Any, nest: Any) -> list[Any]:
    """Return what `nest` has where `like` has leaves, in the order of `like`."""
    node = node_of(like)
    if node is None:
        return [nest]
    parts = zip(node.children, node.read(nest), strict=True)
    return [leaf for child, part in parts for leaf in leaves_like(child, part)]


# Functions inside of the ones above would be cycles of references, which keep items.


def _mapped(function: Callable[[Any], Any], nest: Any) -> Any:
    node = node_of(nest)
    if node is None:
        return function(nest)
    return _rebuilt(nest, node, [_mapped(function, child) for child in node.children])


def _mapped_with_paths(function: Callable[[str, Any], Any], nest: Any, path: str) -> Any:
    node = node_of(nest)
    if node is None:
        return function(path, nest)
    children = [
        _mapped_with_paths(function, child, path + node.step(position))
        for position, child in enumerate(node.children)
    ]
    return _rebuilt(nest, node, children)


def _rebuilt(nest: Any, node: Node, children: list[Any]) -> Any:
    if children and all(map(operator.is_, children, node.children)):
        return nest
    return node.rebuild(children)


def _collect(nest: Any, leaves: list[Any]) -> None:
    node = node_of(nest)
    if node is None:
        leaves.append(nest)
    else:
        for child in node.children:
            _collect(child, leaves)
