"""Batch echoing by reference: how items are watched, copied and labelled between their uses.

The native stage protects and watches arrays, tensors, dicts, lists and tuples by itself
(csrc/bindings/items/sharing.cpp) and asks `describe` for other nodes. All other objects pass as
they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from pyecho._core import ConfigError, explain_nests
from pyecho.items.nest import bounded, node_of
from pyecho.items.nodes import Node
from pyecho.items.spec import EchoInfo, is_tensor


def describe(value: Any) -> Node | None:
    """Return `value` as a node, whose parts are watched, or None."""
    try:
        return node_of(value)
    except Exception:
        return None  # an item may be anything, and passes as it is


def path_to(value: Any, target: Any, path: str = "item") -> str | None:
    """Return how a path names `target` inside `value`; None if it is not in there."""
    if value is target:
        return path
    node = describe(value)
    if node is not None:
        for position, child in enumerate(node.children):
            inside = path_to(child, target, path + node.step(position))
            if inside is not None:
                return inside
    return None


explain_nests(describe, path_to)


@bounded
def own(item: Any) -> Any:
    """Return a copy of an item for one use only."""
    try:
        return _own(item)
    except (TypeError, copy.Error) as error:
        raise ConfigError(
            "each use gets a copy of an item's objects, and one cannot be copied "
            f"({error}); give its type a __deepcopy__ (that returns self if nothing changes it), "
            "or leave it out in the source"
        ) from error


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
