"""A node of a nest: what its kinds have in common."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, ClassVar

from pyecho._core import ConfigError

leaf_types: set[type] = set()
"""Types whose instances are leaves although they look like nodes."""


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
        self.name = type(like).__name__
        self.keys = keys
        found = self.read(like) if children is None else children
        if isinstance(found, str):
            raise ConfigError(f"a {self.name} cannot be taken apart: it has {found}")
        self.children = found

    @property
    def expected(self) -> str:
        """Name of the kind that `read` accepts, for messages."""
        return f"a {self.name} with {', '.join(map(str, self.keys))}"

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
                f"a {self.name} cannot be made of new children ({error}); convert it in the source "
                "(dict(), dataclasses.asdict()), or tell how with pyecho.register_node()"
            ) from error

    def _checked(self, made: Any, children: list[Any]) -> Any:
        found = self.read(made)
        if isinstance(found, str) or not all(map(operator.is_, found, children)):
            raise TypeError("its copy does not hold what was put into it")
        return made
