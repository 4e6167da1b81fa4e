"""Nodes of a nest: one class for each kind, which takes a node apart, and makes another like it.

TensorDicts are in `tensordicts`; `nest.node_of` chooses the class.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import operator
import sys
from collections import UserDict
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from pyecho._core import ConfigError, SpecMismatch
from pyecho.items.spec import Field

ATOMS = (str, bytes, int, float, complex, type(None), np.ndarray, np.generic, Field)
"""Types whose instances are leaves, with instances of classes derived from them."""


class Node:
    """One node of a nest: its children in order, how a path names them, how to make another.

    `like` is the dict, list, ... itself, and `keys` tell its children apart. Native code reads and
    remakes nodes through `children`, `keys`, `step`, `read` and `rebuild`
    (csrc/bindings/items/structure.cpp, sharing.cpp).
    """

    is_list: ClassVar[bool] = False  # True for a list or tuple without names
    step_form: ClassVar[str] = "[{!r}]"  # how a path names a child, by its key: ['image'], .image
    form: str = "{name} with {names}"  # how messages show it
    base: type[Any] | None = None
    """The type that items may be derived from; None: they are of the type of `like`."""
    context: Any = None
    """Data beside the children, equal in all items."""
    parts: Sequence[Node | None]
    """The nodes of its children, None for a leaf; of a node in a `nest.Structure`."""

    def __init__(self, like: Any, keys: Sequence[Any], children: list[Any]) -> None:
        self.like = like
        self.name = type(like).__name__
        self.keys = keys
        self.children = children

    def make(self, children: list[Any]) -> Any:
        """Return a new node of this type and with its attributes; may raise anything."""
        raise NotImplementedError

    def accepts(self, item: Any) -> bool:
        """Return True if an item is of a type that `read` can take apart."""
        if self.base is None:
            return type(item) is type(self.like)
        return isinstance(item, self.base)

    def children_of(self, other: Node) -> list[Any] | None:
        """Return the children of another node in the order of this one; None if they differ."""
        return other.children if other.keys == self.keys else None

    def read(self, item: Any) -> list[Any]:
        """Return the children of a node like this one; `SpecMismatch` if `item` is none."""
        if not self.accepts(item):
            raise SpecMismatch(f"expected a {self}, got {type(item).__name__}")
        other = item if isinstance(item, Node) else type(self)(item)  # type: ignore[call-arg]
        children = self.children_of(other)
        if children is None:
            raise SpecMismatch(f"expected a {self}, got {other}")
        if other.context is not self.context and other.context != self.context:
            raise SpecMismatch(
                f"expected a {self}, got a context of {other.context!r} instead of {self.context!r}"
            )
        return children

    def step(self, position: int) -> str:
        """Return how a path names a child."""
        return self.step_form.format(self.keys[position])

    def rebuild(self, children: list[Any]) -> Any:
        """Return a new node of this type and with its attributes, or raise `ConfigError`."""
        try:
            return self.make(children)
        except Exception as error:
            raise ConfigError(
                f"a {self.name} cannot be made of new children ({error}); convert it in the source "
                "(dict(), dataclasses.asdict()), or tell how with pyecho.register_node()"
            ) from error

    def __str__(self) -> str:
        """Return how messages show it."""
        names = ", ".join(map(str, self.keys))
        return self.form.format(
            name=self.name, names=names, keys=tuple(self.keys), count=len(self.keys)
        )

    def _checked(self, copied: Any, children: list[Any]) -> Any:
        if not all(map(operator.is_, self.read(copied), children)):
            raise TypeError("its copy does not hold what was put into it")
        return copied


class MappingNode(Node):
    """A mapping: of a dict and a `UserDict` a copy is filled, others are made anew, of a dict."""

    form = "{name} with keys {keys!r}"

    def __init__(self, like: Any) -> None:
        entries = dict.copy(like) if isinstance(like, dict) else dict(like.items())
        super().__init__(like, tuple(entries), list(entries.values()))
        self.base = dict if isinstance(like, dict) else type(like)

    def children_of(self, other: Node) -> list[Any] | None:
        """Return the values by their keys. A NaN, which equals no other, goes by its number."""
        keys: Sequence[Any] = self.keys
        if len(keys) == len(other.keys) and all(map(operator.is_, keys, other.keys)):
            return other.children  # without comparing keys, which may run code
        entries = dict(zip(other.keys, other.children, strict=True))
        if entries.keys() != set(keys):
            keys = _comparable(keys)
            entries = dict(zip(_comparable(other.keys), other.children, strict=True))
            if entries.keys() != set(keys):
                return None
        return [entries[key] for key in keys]

    def make(self, children: list[Any]) -> Any:
        """Fill a shallow copy, which keeps the attributes, or call the type with a dict."""
        like, entries = self.like, dict(zip(self.keys, children, strict=True))
        if type(like) is dict:
            return entries
        if not isinstance(like, dict | UserDict):
            return self._checked(type(like)(entries), children)
        copied: Any = copy.copy(like)
        if isinstance(like, UserDict) and copied.data is like.data:
            raise TypeError("copy.copy() shares its data")
        if copied is like or type(copied) is not type(like):
            raise TypeError(f"copy.copy() makes a {type(copied).__name__} of it")
        for key, child in entries.items():
            copied[key] = child
        return self._checked(copied, children)


_NAN = object()


def _comparable(keys: Sequence[Any]) -> list[Any]:
    """Return keys that equal the ones of other items, with the number of each NaN for it."""
    numbers = itertools.count()
    return [
        (_NAN, next(numbers)) if isinstance(key, float | np.floating) and np.isnan(key) else key
        for key in keys
    ]


class ListNode(Node):
    """A list or tuple. Of a subclass that cannot be made of its children, a plain one is made."""

    is_list = True
    form = "{name} of {count}"

    def __init__(self, like: Any) -> None:
        super().__init__(like, range(len(like)), list(like))
        self.base = list if isinstance(like, list) else tuple

    def make(self, children: list[Any]) -> Any:
        """Call the type."""
        try:
            return self._checked(type(self.like)(children), children)
        except Exception:  # torch.Size, say, takes nothing but numbers
            return list(children) if self.base is list else tuple(children)


class NamedTupleNode(ListNode):
    """A namedtuple; its `__new__` does not run."""

    is_list = False
    step_form = ".{}"
    form = "{name} of {names}"

    def __init__(self, like: Any) -> None:
        super().__init__(like)
        if hasattr(like, "_fields"):
            self.keys = like._fields
        else:  # an item of a source of namedtuples
            self.form = ListNode.form

    def children_of(self, other: Node) -> list[Any] | None:
        """Return the elements, also of a tuple without names."""
        return other.children if other.keys in (self.keys, range(len(self.keys))) else None

    def make(self, children: list[Any]) -> Any:
        """Make a tuple of this type."""
        return tuple.__new__(type(self.like), children)


class DataclassNode(Node):
    """A dataclass instance, with the fields that it has. Neither `__init__` nor `__copy__` runs."""

    step_form = ".{}"

    def __init__(self, like: Any) -> None:
        names = [field.name for field in dataclasses.fields(like) if hasattr(like, field.name)]
        super().__init__(like, names, [getattr(like, name) for name in names])

    def children_of(self, other: Node) -> list[Any] | None:
        """Return the fields that the first item had; others of later items are left out."""
        entries = dict(zip(other.keys, other.children, strict=True))
        known = entries.keys() >= set(self.keys)
        return [entries[name] for name in self.keys] if known else None

    def make(self, children: list[Any]) -> Any:
        """Set the fields of a new instance that has the attributes of this one."""
        copied = object.__new__(type(self.like))
        if hasattr(copied, "__dict__"):
            copied.__dict__.update(self.like.__dict__)
        for name, child in zip(self.keys, children, strict=True):
            object.__setattr__(copied, name, child)
        return copied


# ------------------------------------------------------------ registered types

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
        flattened: Any
        if type(like) in _registered:
            flatten, self._unflatten = _registered[type(like)]
            flattened = flatten(like)
        else:
            flatten = sys.modules["optree"].tree_flatten_one_level
            *flattened, self._unflatten = flatten(like, none_is_leaf=True)
        try:
            parts, self.context, *more = flattened
            children = list(parts)
            names = tuple(more[0] if more else range(len(children)))
            if len(more) > 1 or len(names) != len(children):
                raise ValueError(f"{len(names)} names for {len(children)} children")
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"flatten() of {type(like).__name__} must return (children, context) or (children, "
                f"context, names), see pyecho.register_node: {error}"
            ) from error
        super().__init__(like, names, children)

    def step(self, position: int) -> str:
        """Return the name of a child, else its number."""
        key = self.keys[position]
        return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"

    def make(self, children: list[Any]) -> Any:
        """Call the registered function."""
        return self._unflatten(self.context, children)
