"""Nodes of types that a program has registered with `register_node`, or with optree."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.items.nodes import Node
from pyecho.items.spec import Field

ATOMS = (str, bytes, int, float, complex, type(None), np.ndarray, np.generic, Field)
"""Types whose instances are leaves, with instances of classes derived from them."""

_registered: dict[type, tuple[Callable[..., Any], Callable[..., Any]]] = {}


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

    Examples that contain it are batched child by child, and each batch contains one made of the
    children with a batch axis. May be called in any thread, before the first item is read.

    Parameters
    ----------
    type
        The class, without classes derived from it.
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
        If the type is none, is registered already, or is a dict, list, tuple, number, string or
        array, which pyecho takes as such; if a function cannot be called.
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
    functions = flatten, unflatten
    if _registered.setdefault(type, functions) is not functions:  # safe in any thread
        raise ConfigError(f"{type.__name__} is registered already")


def is_registered(value: Any) -> bool:
    """Return True for an instance of a type that is registered here or with optree."""
    if type(value) in _registered:
        return True
    # Containers of the standard library keep our rules, whether or not optree is imported.
    if type(value).__module__ in sys.stdlib_module_names:
        return False
    is_leaf = getattr(sys.modules.get("optree"), "tree_is_leaf", None)
    return is_leaf is not None and not is_leaf(value, none_is_leaf=True)


class RegisteredNode(Node):
    """An instance of a registered type, taken apart by the registered functions."""

    def __init__(self, like: Any) -> None:
        self.like = like
        self.name = type(like).__name__
        self.children, self.keys, self._context = self._flatten(like)

    def step(self, position: int) -> str:
        """Return the name of a child, else its number."""
        key = self.keys[position]
        return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"

    def read(self, item: Any) -> list[Any]:
        """Return the children; names and context must be the same."""
        if type(item) is not type(self.like):
            raise self._unlike(type(item).__name__)
        children, names, context = self._flatten(item)
        if names != self.keys:
            raise self._unlike(f"{self.name} with {', '.join(map(str, names))}")
        if context is not self._context and context != self._context:
            raise self._unlike(f"a context of {context!r} instead of {self._context!r}")
        return children

    def make(self, children: list[Any]) -> Any:
        """Call the registered function."""
        return self._unflatten(self._context, children)

    def _flatten(self, item: Any) -> tuple[list[Any], Sequence[Any], Any]:
        """Return the children, their names, and the context that `make` needs beside them."""
        flattened: Any
        if type(item) in _registered:
            flatten, self._unflatten = _registered[type(item)]
            flattened = flatten(item)
        else:
            flatten = sys.modules["optree"].tree_flatten_one_level
            *flattened, self._unflatten = flatten(item, none_is_leaf=True)
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
