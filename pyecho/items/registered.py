"""Nodes of types that a program has registered, with `register_node` or with optree."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pyecho._core import ConfigError
from pyecho.items.node import Node

ATOMS = (str, bytes, int, float, complex, type(None), np.ndarray, np.generic)
"""Types whose instances are leaves, with instances of classes derived from them."""


class _Entry(NamedTuple):
    flatten: Callable[[Any], tuple[Any, ...]]
    unflatten: Callable[[Any, list[Any]], Any]


_entries: dict[type, _Entry] = {}
_registering = threading.Lock()


def register_node(
    type: type,
    flatten: Callable[[Any], tuple[Any, ...]],
    unflatten: Callable[[Any, list[Any]], Any],
) -> None:
    """Make instances of a type nodes of nests, as dicts and lists are.

    ::

        class Graph:
            def __init__(self, nodes, edges, kind): ...

        pyecho.register_node(
            Graph,
            lambda graph: ([graph.nodes, graph.edges], graph.kind, ["nodes", "edges"]),
            lambda kind, children: Graph(*children, kind),
        )

    Examples that contain it are then batched child by child, and each batch contains one made of
    the children with a batch axis. May be called in any thread, before the first item is read.

    Parameters
    ----------
    type
        The class; classes derived from it are not registered.
    flatten
        ``flatten(instance)`` returns ``(children, context)`` or ``(children, context, names)``: a
        list of the parts; what they are put together with, equal in all items of a source; and
        the parts' names for messages. It changes nothing.
    unflatten
        ``unflatten(context, children)`` returns an instance. The children may be anything: in a
        spec there is a `Field` for each leaf, so `unflatten` must not check them.

    Raises
    ------
    ConfigError
        If the type is none or is registered already; if it is a dict, list, tuple, number, string
        or array, which pyecho takes as such; if a function cannot be called.
    """
    if not inspect.isclass(type):
        raise ConfigError(f"register_node() needs a class, got {type!r}")
    if issubclass(type, (dict, list, tuple, *ATOMS)) or hasattr(type, "__dlpack__"):
        raise ConfigError(
            f"{type.__name__} cannot be registered: pyecho takes dicts, lists, tuples, numbers, "
            "strings and arrays as such"
        )
    for name, function in (("flatten", flatten), ("unflatten", unflatten)):
        if not callable(function):
            raise ConfigError(f"{name} must be a function, got {function!r}")
    with _registering:
        if type in _entries:
            raise ConfigError(f"{type.__name__} is registered already")
        _entries[type] = _Entry(flatten, unflatten)


def registered_node(value: Any) -> Node | None:
    """Describe an instance of a registered type; None for one of another type."""
    if type(value) in _entries:
        return _RegisteredNode(value)
    return _OptreeNode(value) if _is_node_of_optree(value) else None


def _is_node_of_optree(value: Any) -> bool:
    # Containers of the standard library keep our rules, whether or not optree is imported.
    if type(value).__module__ in sys.stdlib_module_names:
        return False
    is_leaf = getattr(sys.modules.get("optree"), "tree_is_leaf", None)
    return is_leaf is not None and not is_leaf(value, none_is_leaf=True)


class _RegisteredNode(Node):
    """An instance of a registered type, which the registered functions take apart."""

    def __init__(self, like: Any) -> None:
        children, names, self._context = self._flatten(like)
        super().__init__(like, names, children)

    def step(self, position: int) -> str:
        """Return the name of a child, else its number."""
        key = self.keys[position]
        return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"

    def read(self, item: Any) -> list[Any] | str:
        """Return the children; names and context must be the same."""
        if type(item) is not type(self.like):
            return type(item).__name__
        children, names, context = self._flatten(item)
        if names != self.keys:
            return f"{self.name} with {', '.join(map(str, names))}"
        if context is not self._context and context != self._context:
            return f"a context of {context!r} instead of {self._context!r}"
        return children

    def make(self, children: list[Any]) -> Any:
        return _entries[type(self.like)].unflatten(self._context, children)

    def _flatten(self, item: Any) -> tuple[list[Any], Sequence[Any], Any]:
        """Return the children, their names, and the context that `make` needs beside them."""
        flattened = _entries[type(item)].flatten(item)
        try:
            parts, context, *more = flattened
            children = list(parts)
            names = tuple(more[0] if more else range(len(children)))
            if len(more) > 1 or len(names) != len(children):
                raise ValueError(f"{len(names)} names for {len(children)} children")
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"flatten() of {type(item).__name__} must return (children, context) or (children, "
                f"context, names), see pyecho.register_node: {error}"
            ) from error
        return children, names, context


class _OptreeNode(_RegisteredNode):
    """An instance of a type registered with optree, in its global namespace."""

    def step(self, position: int) -> str:
        import optree

        accessors = optree.tree_accessors(
            self.like, is_leaf=lambda part: part is not self.like, none_is_leaf=True
        )
        return accessors[position].codify("")

    def make(self, children: list[Any]) -> Any:
        return self._unflatten(self._context, children)

    def _flatten(self, item: Any) -> tuple[list[Any], Sequence[Any], Any]:
        import optree

        children, context, names, self._unflatten = optree.tree_flatten_one_level(
            item, none_is_leaf=True
        )
        return children, names, context
