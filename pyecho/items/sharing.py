"""Batch echoing by reference: how items are watched, copied and labelled between their uses.

The native stage protects and watches arrays, tensors, dicts, lists and tuples by itself
(csrc/bindings/sharing.cpp) and asks `describe` for the rest.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from pyecho._core import ConfigError, explain_nests
from pyecho.items.nest import bounded
from pyecho.items.nodes import Node, node_of
from pyecho.items.spec import EchoInfo, is_tensor

_MOST_ENTRIES = 64  # of an object's dict or list that is searched for arrays: a vocabulary is not


class HolderNode(Node):
    """An object with arrays or tensors as attributes, or right inside of an attribute.

    Only these are compared: other attributes, and new ones, are the object's own business.
    """

    rebuild = None  # type: ignore[assignment]

    def step(self, position: int) -> str:
        """Name the attribute, and the key in it."""
        name, *keys = self.keys[position]
        return f".{name}" + "".join(f"[{key!r}]" for key in keys)

    def read(self, item: Any) -> list[Any] | str:
        """Return the arrays and tensors."""
        children = []
        for name, *keys in self.keys:
            try:
                child = getattr(item, name)
                for key in keys:
                    child = child[key]
            except (AttributeError, LookupError):
                child = None
            children.append(child)
        return children


def describe(value: Any) -> Node | None:
    """Return a node of the parts of `value` to watch, or None."""
    try:
        return node_of(value) or _holder_of(value)
    except Exception:
        return None  # an item may be anything, and passes as it is


def _holder_of(value: Any) -> HolderNode | None:
    attributes = getattr(value, "__dict__", None)
    if type(attributes) is not dict or isinstance(value, ModuleType):
        return None
    places: list[tuple[Any, ...]] = []
    for name, attribute in list(attributes.items()):
        if _is_array(attribute):
            places.append((name,))
        elif isinstance(attribute, list | tuple | Mapping) and len(attribute) <= _MOST_ENTRIES:
            keys = attribute if isinstance(attribute, Mapping) else range(len(attribute))
            places += [(name, key) for key in list(keys) if _is_array(attribute[key])]
    return HolderNode(value, places) if places else None


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or is_tensor(value)


def path_to(value: Any, target: Any, path: str = "item") -> str | None:
    """Return how a path names `target` inside `value`; None if it is not in there."""
    if value is target:
        return path
    node = describe(value)
    if node is not None:
        for position, child in enumerate(node.children):
            found = path_to(child, target, path + node.step(position))
            if found is not None:
                return found
    return None


explain_nests(describe, path_to)


@bounded
def own(item: Any) -> Any:
    """Return a copy of an item for one use only."""
    return _own(item)


def _own(item: Any) -> Any:
    node = node_of(item)
    if node is not None:
        try:
            return node.rebuild([_own(child) for child in node.children])
        except ConfigError:
            return copy.deepcopy(item)
    if isinstance(item, np.ndarray):
        return item.copy()
    return item.detach().clone() if is_tensor(item) else copy.deepcopy(item)


def transform_for(
    *, fetch: Callable[[Any], Any] | None, copied: bool, with_info: bool
) -> Callable[[Any, int, int], Any] | None:
    """Return what is done to an item on each use: fetch it, copy it, label it. None: nothing."""
    if fetch is None and not copied and not with_info:
        return None

    def transform(item: Any, source_index: int, use: int) -> Any:
        item = item if fetch is None else fetch(item)
        item = own(item) if copied else item
        if not with_info:
            return item
        return item, EchoInfo(np.array([source_index]), np.array([use], dtype=np.int32))

    return transform
