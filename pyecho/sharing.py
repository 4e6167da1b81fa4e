"""Batch echoing by reference: how items are protected, copied and labelled between their uses."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pyecho.buffer import EchoInfo
from pyecho.spec import is_nest, leaves_of, map_nest

Guards = tuple[tuple[Any, str | None, Any, str], ...]


def is_tensor(leaf: Any) -> bool:
    """Whether `leaf` is a torch tensor; torch is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(leaf, torch.Tensor)


def _read_only(leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray):
        return leaf
    view = leaf.view()
    view.flags.writeable = False
    return view


def share(item: Any) -> tuple[Any, Guards | None]:
    """Prepare an item whose uses share one storage.

    Returns
    -------
    item
        The item with read-only views for NumPy leaves, other leaves as they are.
    guards
        What the native stage compares before each repeat: the version of each torch tensor, which
        torch advances whenever it is modified in place (also those in dataclasses and mappings),
        and what dicts and lists contain. None if there is nothing to compare.
    """
    guards: list[tuple[Any, str | None, Any, str]] = []

    def guard(value: Any, path: str) -> None:
        if is_nest(value):
            if isinstance(value, dict | list):
                guards.append((value, None, value.copy(), path))
            steps = value.items() if isinstance(value, dict) else enumerate(value)
            for key, child in steps:
                guard(child, f"{path}[{key!r}]")
        elif is_tensor(value):
            if not value.is_inference():
                guards.append((value, "_version", value._version, path))
        elif isinstance(value, Mapping):
            for key in value:
                guard(value[key], f"{path}[{key!r}]")
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                guard(getattr(value, field.name), f"{path}.{field.name}")

    if any(isinstance(leaf, np.ndarray) for leaf in leaves_of(item)):
        item = map_nest(_read_only, item)
    guard(item, "item")
    return item, tuple(guards) or None


def _own(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    return leaf.detach().clone() if is_tensor(leaf) else copy.deepcopy(leaf)


def transform_for(
    *, fetch: Callable[[Any], Any] | None, copied: bool, with_info: bool
) -> Callable[[Any, int, int], Any] | None:
    """Return what is done to an item on each use, or None for nothing.

    Parameters
    ----------
    fetch
        Makes what the consumer gets of what is in the queue; None: it is the same.
    copied
        Whether every use gets a copy of its own.
    with_info
        Whether it gets a label.
    """
    if fetch is None and not copied and not with_info:
        return None

    def transform(item: Any, source_index: int, use: int) -> Any:
        if fetch is not None:
            item = fetch(item)
        if copied:
            item = map_nest(_own, item)
        if with_info:
            return item, EchoInfo(np.array([source_index]), np.array([use], dtype=np.int32))
        return item

    return transform
