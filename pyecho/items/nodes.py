"""Nodes of a nest. Each kind is one class: the names of its children, how to read and remake it.

Standard containers and dataclasses are here, types that were registered in `registered`,
TensorDicts in `tensordicts`; `nest.node_of` chooses among them.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections import UserDict
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from pyecho._core import ConfigError, SpecMismatch


class Node:
    """One node of a nest: its children in order, how a path names them, how to make another.

    `like` is the dict, list, ... itself, and `keys` tell its children apart, in order. Native code
    reads and remakes nodes through `children`, `keys`, `step`, `read` and `rebuild`
    (csrc/bindings/structure.cpp, sharing.cpp).
    """

    is_list: ClassVar[bool] = False  # True for a list or tuple without names
    step_form: ClassVar[str] = "[{!r}]"  # how a path names a child, by its key: ['image'], .image

    def __init__(self, like: Any) -> None:
        self.like = like
        self.name = type(like).__name__
        self.keys = self.names_of(like)
        self.children = self.read(like)

    def names_of(self, item: Any) -> Sequence[Any]:
        """Return the keys of the children, in order."""
        raise NotImplementedError

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

    def _expected(self) -> str:
        return f"a {self.name} with {', '.join(map(str, self.keys))}"

    def _unlike(self, came: str) -> SpecMismatch:
        return SpecMismatch(f"expected {self._expected()}, got {came}")

    def _checked(self, copied: Any, children: list[Any]) -> Any:
        if not all(map(operator.is_, self.read(copied), children)):
            raise TypeError("its copy does not hold what was put into it")
        return copied


class MappingNode(Node):
    """A mapping: of a dict and a `UserDict` a copy is filled, others are made anew, of a dict."""

    def names_of(self, item: Any) -> Sequence[Any]:
        """Return the keys."""
        return tuple(dict.keys(item) if isinstance(item, dict) else item)

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

    def _expected(self) -> str:
        return f"a {self.name} with keys {tuple(self.keys)!r}"


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

    @property
    def _plain(self) -> type[list[Any] | tuple[Any, ...]]:
        return list if isinstance(self.like, list) else tuple

    def names_of(self, item: Any) -> Sequence[Any]:
        """Return the numbers of the elements."""
        return range(len(item))

    def read(self, item: Any) -> list[Any]:
        """Return the elements."""
        if not isinstance(item, self._plain):
            raise self._unlike(type(item).__name__)
        children = list(item)
        if len(children) != len(self.keys):
            raise self._unlike(f"{type(item).__name__} of {len(children)}")
        return children

    def make(self, children: list[Any]) -> Any:
        """Call the type."""
        if type(self.like) is not self._plain:
            try:
                return self._checked(type(self.like)(children), children)
            except Exception:  # torch.Size, say, takes nothing but numbers
                pass
        return self._plain(children)

    def _expected(self) -> str:
        return f"a {self._plain.__name__} of {len(self.keys)}"


class NamedTupleNode(ListNode):
    """A namedtuple; its `__new__` does not run."""

    is_list = False
    step_form = ".{}"

    def names_of(self, item: Any) -> Sequence[Any]:
        """Return the names of the fields."""
        return type(item)._fields  # type: ignore[no-any-return]

    def read(self, item: Any) -> list[Any]:
        """Return the elements, also of a tuple without names."""
        if getattr(item, "_fields", self.keys) != self.keys:
            raise self._unlike(type(item).__name__)
        return super().read(item)

    def make(self, children: list[Any]) -> Any:
        """Make a tuple of this type."""
        return tuple.__new__(type(self.like), children)

    def _expected(self) -> str:
        return f"a {self.name} of {', '.join(self.keys)}"


class DataclassNode(Node):
    """A dataclass instance, with the fields that it has. Neither `__init__` nor `__copy__` runs."""

    step_form = ".{}"

    def names_of(self, item: Any) -> Sequence[Any]:
        """Return the names of the fields that have a value."""
        return [field.name for field in dataclasses.fields(item) if hasattr(item, field.name)]

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
