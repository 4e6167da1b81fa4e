"""Nests: what an item is made of, down to its leaves. Whatever walks an item walks it by this."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from pyecho.items.nodes import node_of


def map_nest(function: Callable[[Any], Any], nest: Any) -> Any:
    """Return the nest with each leaf replaced by ``function(leaf)``; itself if none changes."""
    node = node_of(nest)
    if node is None:
        return function(nest)
    children = [map_nest(function, child) for child in node.children]
    return _rebuilt(nest, node, children)


def map_paths(function: Callable[[str, Any], Any], nest: Any, path: str = "item") -> Any:
    """Do as `map_nest`, with a function of the leaf's path (such as item['x']) and the leaf."""
    node = node_of(nest)
    if node is None:
        return function(path, nest)
    children = [
        map_paths(function, child, path + node.step(position))
        for position, child in enumerate(node.children)
    ]
    return _rebuilt(nest, node, children)


def _rebuilt(nest: Any, node: Any, children: list[Any]) -> Any:
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
