"""Nodes of a nest. Each kind is one class, which says how it is read and made again.

TensorDicts are in `tensordicts`; `nest.node_of` chooses the class and names the children.
"""

from __future__ import annotations

import copy
import inspect
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

    `like` is the dict, list, ... itself, and `keys` tell its children apart, in order. Native code
    reads and remakes nodes through `children`, `keys`, `step`, `read` and `rebuild`
    (csrc/bindings/structure.cpp, sharing.cpp).
    """

    is_list: ClassVar[bool] = False  # True for a list or tuple without names
    step_form: ClassVar[str] = "[{!r}]"  # how a path names a child, by its key: ['image'], .image
    expected_form: ClassVar[str] = "a {name} with {names}"  # how a message tells what is accepted

    def __init__(self, like: Any, keys: Sequence[Any], children: list[Any] | None = None) -> None:
        self.like = like
        self.name = type(like).__name__
        self.keys = keys
        self.children = self.read(like) if children is None else children

    def read(self, item: Any) -> list[Any]:
        """Return the children of a node like this one; `SpecMismatch` if `item` is none."""
        raise NotImplementedError

    def make(self, children: list[Any]) -> Any:
        """Return a new node of this type and with its attributes; may raise anything."""
        raise NotImplementedError

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

    def _unlike(self, came: str) -> SpecMismatch:
        names = ", ".join(map(str, self.keys))
        expected = self.expected_form.format(
            name=self.name, names=names, keys=tuple(self.keys), count=len(self.keys)
        )
        return SpecMismatch(f"expected {expected}, got {came}")

    def _checked(self, copied: Any, children: list[Any]) -> Any:
        if not all(map(operator.is_, self.read(copied), children)):
            raise TypeError("its copy does not hold what was put into it")
        return copied


class MappingNode(Node):
    """A mapping: of a dict and a `UserDict` a copy is filled, others are made anew, of a dict."""

    expected_form = "a {name} with keys {keys!r}"

    def read(self, item: Any) -> list[Any]:
        """Return the values of the keys, in whatever order the item has them."""
        if not isinstance(item, dict if isinstance(self.like, dict) else type(self.like)):
            raise self._unlike(type(item).__name__)
        return self._values(dict.copy(item) if isinstance(item, dict) else dict(item.items()))

    def _values(self, entries: dict[Any, Any]) -> list[Any]:
        """Return the values of the keys. A NaN, which equals no other, goes by its number."""
        keys, values = self.keys, entries
        if not all(key in values for key in keys):
            keys = _comparable(keys)
            values = dict(zip(_comparable(tuple(entries)), entries.values(), strict=True))
        if len(values) != len(keys) or not all(key in values for key in keys):
            raise self._unlike(f"keys {tuple(entries)!r}")
        return [values[key] for key in keys]

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
    number_of_nan = 0
    comparable = []
    for key in keys:
        if isinstance(key, float | np.floating) and np.isnan(key):
            key = (_NAN, number_of_nan)
            number_of_nan += 1
        comparable.append(key)
    return comparable


class ListNode(Node):
    """A list or tuple. Of a subclass that cannot be made of its children, a plain one is made."""

    is_list = True
    expected_form = "a list of {count}"
    plain_type: ClassVar[type[list[Any] | tuple[Any, ...]]] = list

    def read(self, item: Any) -> list[Any]:
        """Return the elements."""
        if not isinstance(item, self.plain_type):
            raise self._unlike(type(item).__name__)
        children = list(item)
        if len(children) != len(self.keys):
            raise self._unlike(f"{type(item).__name__} of {len(children)}")
        return children

    def make(self, children: list[Any]) -> Any:
        """Call the type."""
        if type(self.like) is not self.plain_type:
            try:
                return self._checked(type(self.like)(children), children)
            except Exception:  # torch.Size, say, takes nothing but numbers
                pass
        return self.plain_type(children)


class TupleNode(ListNode):
    """A tuple without names."""

    expected_form = "a tuple of {count}"
    plain_type = tuple


class NamedTupleNode(TupleNode):
    """A namedtuple; its `__new__` does not run."""

    is_list = False
    step_form = ".{}"
    expected_form = "a {name} of {names}"

    def read(self, item: Any) -> list[Any]:
        """Return the elements, also of a tuple without names."""
        if getattr(item, "_fields", self.keys) != self.keys:
            raise self._unlike(type(item).__name__)
        return super().read(item)

    def make(self, children: list[Any]) -> Any:
        """Make a tuple of this type."""
        return tuple.__new__(type(self.like), children)


class DataclassNode(Node):
    """A dataclass instance, with the fields that it has. Neither `__init__` nor `__copy__` runs."""

    step_form = ".{}"

    def read(self, item: Any) -> list[Any]:
        """Return the fields that the first item had."""
        if type(item) is not type(self.like):
            raise self._unlike(type(item).__name__)
        lacking = [name for name in self.keys if not hasattr(item, name)]
        if lacking:
            raise self._unlike(f"no {', '.join(lacking)}")
        return [getattr(item, name) for name in self.keys]

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
        children, names, self._context = self._flatten(like)
        super().__init__(like, names, children)

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
