"""Nodes: what a nest is made of. Each kind is one class, which says how it is read and rebuilt.

A node is a dict, list, tuple, namedtuple, `Mapping`, dataclass instance, TensorDict, or an instance
of a type that is registered with `register_node` or with optree. Everything else is a leaf.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections import UserDict
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from pyecho.items.node import Node, leaf_types
from pyecho.items.registered import ATOMS, registered_node
from pyecho.items.tensordicts import TensorDictNode, is_tensor_dict


class _MappingNode(Node):
    """A mapping: of a dict and a `UserDict` a copy is filled, others are made anew, of a dict."""

    plain: ClassVar[Any] = None

    @property
    def expected(self) -> str:
        return f"a {self.name} with keys {tuple(self.keys)!r}"

    def read(self, item: Any) -> list[Any] | str:
        """Return the values of the keys, in whatever order the item has them."""
        if not isinstance(item, self.plain or type(self.like)):
            return type(item).__name__
        entries = dict.copy(item) if isinstance(item, dict) else dict(item.items())
        wanted, found = self.keys, entries
        if not all(key in found for key in wanted):
            wanted = _comparable(wanted)
            found = dict(zip(_comparable(entries), entries.values(), strict=True))
        if len(found) != len(wanted) or not all(key in found for key in wanted):
            return f"keys {tuple(entries)!r}"
        return [found[key] for key in wanted]

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


def _comparable(keys: Iterable[Any]) -> list[Any]:
    """Return keys that equal the ones of other items: NaN does not, and is told by its number."""
    numbers = itertools.count()
    return [
        (_NAN, next(numbers)) if isinstance(key, float | np.floating) and np.isnan(key) else key
        for key in keys
    ]


_NAN = object()


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
        return f"a {self.name} of {', '.join(self.keys)}"

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


def node_of(value: Any) -> Node | None:
    """Describe a node of a nest; None if `value` is a leaf."""
    kind: Any = type(value)
    if issubclass(kind, dict):
        return _DictNode(value, tuple(dict.keys(value)))
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _NamedTupleNode(value, kind._fields)
    if issubclass(kind, list | tuple):
        return (_ListNode if issubclass(kind, list) else _TupleNode)(value, range(len(value)))
    if issubclass(kind, ATOMS) or kind in leaf_types or hasattr(kind, "__dlpack__"):
        return None
    registered = registered_node(value)
    if registered is not None:
        return registered if registered.children else None  # without children: a constant
    if isinstance(value, TensorDictNode):
        return value
    if issubclass(kind, Mapping):
        return TensorDictNode(value) if is_tensor_dict(value) else _MappingNode(value, tuple(value))
    if dataclasses.is_dataclass(kind):
        if is_tensor_dict(value):
            return TensorDictNode(value)
        names = [field.name for field in dataclasses.fields(kind) if hasattr(value, field.name)]
        return _FieldsNode(value, names)
    return None
