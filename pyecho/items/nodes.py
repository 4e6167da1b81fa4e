"""Nodes: what a nest is made of. Each kind is one class, which says how it is read and rebuilt.

A node is a dict, list, tuple, namedtuple, `Mapping` or dataclass instance, or an instance of a type
that is registered as a pytree node with `torch.utils._pytree` or `optree`, if the program has
imported one of them. Everything else is a leaf.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
import sys
from collections import UserDict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from pyecho._core import ConfigError

leaf_types: set[type] = set()
"""Types whose instances are leaves although they look like nodes."""

_ATOMS = (str, bytes, int, float, complex, type(None), np.ndarray, np.generic)


class Node:
    """One node of a nest: its children in order, how a path names them, how to make another.

    `like` is the dict, list, ... itself; `rebuild` gives others its type and attributes. `keys`
    tell the children apart, in order.
    """

    is_list: ClassVar[bool] = False
    """True for a list or tuple without names."""

    step_form: ClassVar[str] = "[{!r}]"
    """The step of a path to a child, by its key: ``['image']``, ``.image``, ``[0]``."""

    def __init__(self, like: Any, keys: Sequence[Any], children: list[Any] | None = None) -> None:
        self.like = like
        self.keys = keys
        found = self.read(like) if children is None else children
        if isinstance(found, str):
            raise ConfigError(f"a {type(like).__name__} cannot be taken apart: it has {found}")
        self.children = found

    @property
    def expected(self) -> str:
        """Name of the kind that `read` accepts, for messages."""
        return f"a {type(self.like).__name__} with {', '.join(self.keys)}"

    def step(self, position: int) -> str:
        """Return how a path names a child."""
        return self.step_form.format(self.keys[position])

    def read(self, item: Any) -> list[Any] | str:
        """Return the children of a node like this one, or what `item` is or has instead."""
        raise NotImplementedError

    def make(self, children: list[Any]) -> Any:
        """Do what `rebuild` does; may raise anything."""
        raise NotImplementedError

    def rebuild(self, children: list[Any]) -> Any:
        """Return a new node like this one with other children, or raise `ConfigError`."""
        try:
            return self.make(children)
        except Exception as error:
            raise ConfigError(
                f"a {type(self.like).__name__} cannot be made of new children ({error}); convert "
                "it in the source (dict(), dataclasses.asdict()), or register its type with "
                "torch.utils._pytree or optree"
            ) from error

    def _checked(self, made: Any, children: list[Any]) -> Any:
        found = self.read(made)
        if isinstance(found, str) or not all(map(operator.is_, found, children)):
            raise TypeError("its copy does not hold what was put into it")
        return made


class _MappingNode(Node):
    """A mapping: of a dict and a `UserDict` a copy is filled, others are made anew, of a dict."""

    plain: ClassVar[Any] = None

    @property
    def expected(self) -> str:
        return f"a {type(self.like).__name__} with keys {tuple(self.keys)!r}"

    def read(self, item: Any) -> list[Any] | str:
        """Return the values of the keys, in whatever order the item has them."""
        if not isinstance(item, self.plain or type(self.like)):
            return type(item).__name__
        entries = dict.copy(item) if isinstance(item, dict) else dict(item.items())
        if len(entries) != len(self.keys) or not all(key in entries for key in self.keys):
            return f"keys {tuple(entries)!r}"
        return [entries[key] for key in self.keys]

    def make(self, children: list[Any]) -> Any:
        """Fill a shallow copy, which keeps the attributes, or call the type with a dict."""
        like, entries = self.like, dict(zip(self.keys, children, strict=True))
        if type(like) is dict:
            return entries
        if not isinstance(like, dict | UserDict):
            return self._checked(type(like)(entries), children)
        made: Any = copy.copy(like)
        if isinstance(like, UserDict) and made.data is like.data:
            raise TypeError("copy.copy() shares its data")
        if made is like or type(made) is not type(like):
            raise TypeError(f"copy.copy() makes a {type(made).__name__} of it")
        for key, child in entries.items():
            made[key] = child
        return self._checked(made, children)


class _DictNode(_MappingNode):
    """A dict, or an instance of a subclass: read as the dict that it is."""

    plain = dict


class _ListNode(Node):
    """A list. Of a subclass that cannot be made of its children, a plain list is made."""

    is_list = True
    plain: ClassVar[type] = list

    @property
    def expected(self) -> str:
        return f"a {self.plain.__name__} of {len(self.keys)}"

    def read(self, item: Any) -> list[Any] | str:
        if not isinstance(item, self.plain):
            return type(item).__name__
        children: list[Any] = list(item)  # type: ignore[call-overload]
        if len(children) != len(self.keys):
            return f"{type(item).__name__} of {len(children)}"
        return children

    def make(self, children: list[Any]) -> Any:
        if type(self.like) is not self.plain:
            try:
                return self._checked(type(self.like)(children), children)
            except Exception:  # torch.Size, say, takes nothing but numbers
                pass
        return self.plain(children)


class _TupleNode(_ListNode):
    """A tuple, likewise."""

    plain = tuple


class _NamedTupleNode(_TupleNode):
    """A namedtuple; its `__new__` does not run."""

    is_list = False
    step_form = ".{}"

    @property
    def expected(self) -> str:
        return f"a {type(self.like).__name__} of {', '.join(self.keys)}"

    def read(self, item: Any) -> list[Any] | str:
        """Return the elements, also of a tuple without names."""
        if getattr(item, "_fields", self.keys) != self.keys:
            return type(item).__name__
        return super().read(item)

    def make(self, children: list[Any]) -> Any:
        """Do what `_make` does."""
        return tuple.__new__(type(self.like), children)


class _FieldsNode(Node):
    """A dataclass instance, with the fields that it has. Neither `__init__` nor `__copy__` runs."""

    step_form = ".{}"

    def read(self, item: Any) -> list[Any] | str:
        if type(item) is not type(self.like):
            return type(item).__name__
        lacking = [name for name in self.keys if not hasattr(item, name)]
        return f"no {', '.join(lacking)}" if lacking else [getattr(item, n) for n in self.keys]

    def make(self, children: list[Any]) -> Any:
        """Set the fields of a new instance that has the attributes of this one."""
        made = object.__new__(type(self.like))
        if hasattr(made, "__dict__"):
            made.__dict__.update(self.like.__dict__)
        for name, child in zip(self.keys, children, strict=True):
            object.__setattr__(made, name, child)
        return made


class _PytreeNode(Node):
    """An instance of a registered type, which is what the registered functions say."""

    step_form = "{}"

    def __init__(self, like: Any, entry: Any) -> None:
        self._entry = entry
        children, steps, self._context = self._flatten(like)
        super().__init__(like, steps, children)

    def read(self, item: Any) -> list[Any] | str:
        """Return the children; steps and context must be the same."""
        if type(item) is not type(self.like):
            return type(item).__name__
        children, steps, context = self._flatten(item)
        if steps != self.keys:
            return f"{type(item).__name__} with {', '.join(steps)}"
        if context is not self._context and context != self._context:
            return f"a context of {context!r} instead of {self._context!r}"
        return children

    def _flatten(self, item: Any) -> tuple[list[Any], tuple[str, ...], Any]:
        """Return children, the steps to them, and the context that `make` needs beside them."""
        raise NotImplementedError


class _TorchNode(_PytreeNode):
    def _flatten(self, item: Any) -> tuple[list[Any], tuple[str, ...], Any]:
        if self._entry.flatten_with_keys_fn is None:
            children, context = self._entry.flatten_fn(item)
            pairs = [(f"[{number}]", child) for number, child in enumerate(children)]
        else:
            pairs, context = self._entry.flatten_with_keys_fn(item)
        return [child for _, child in pairs], tuple(str(key) for key, _ in pairs), context

    def make(self, children: list[Any]) -> Any:
        return self._entry.unflatten_fn(children, self._context)


class _OptreeNode(_PytreeNode):
    def _flatten(self, item: Any) -> tuple[list[Any], tuple[str, ...], Any]:
        entry = self._entry
        children, context, *rest = entry.flatten_func(item)
        children = list(children)
        names = rest[0] if rest and rest[0] is not None else range(len(children))
        keys = (entry.path_entry_type(name, entry.type, entry.kind) for name in names)
        return children, tuple(key.codify("") for key in keys), context

    def make(self, children: list[Any]) -> Any:
        return self._entry.unflatten_func(self._context, children)


def node_of(value: Any) -> Node | None:
    """Describe a node of a nest; None if `value` is a leaf."""
    kind: Any = type(value)
    if issubclass(kind, dict):
        return _DictNode(value, tuple(dict.keys(value)))
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _NamedTupleNode(value, kind._fields)
    if issubclass(kind, list | tuple):
        return (_ListNode if issubclass(kind, list) else _TupleNode)(value, range(len(value)))
    if issubclass(kind, _ATOMS) or kind in leaf_types or hasattr(kind, "__dlpack__"):
        return None
    registered = _registered_node(value)
    if registered is not None:
        return registered if registered.children else None  # without children: a constant
    if issubclass(kind, Mapping):
        return _MappingNode(value, tuple(value))
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind) if hasattr(value, field.name)]
        return _FieldsNode(value, names)
    return None


def _registered_node(value: Any) -> _PytreeNode | None:
    kind = type(value)
    if kind.__module__ in sys.stdlib_module_names:
        return None  # a deque is a leaf, whether or not the program has imported torch
    torch_nodes = getattr(sys.modules.get("torch.utils._pytree"), "SUPPORTED_NODES", {})
    if kind in torch_nodes:
        return _TorchNode(value, torch_nodes[kind])
    optree_nodes = getattr(sys.modules.get("optree.registry"), "_NODETYPE_REGISTRY", {})
    for entry in tuple(optree_nodes.values()):  # of all namespaces
        if entry.type is kind:
            return _OptreeNode(value, entry)
    return None
