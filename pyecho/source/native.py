"""Native sources, which put examples into the slots of a loader themselves.

A native source has two methods, which docs/embedding.md describes: ``__pyecho_spec__()`` returns
the nest of `Field` of an example, and ``__pyecho_feed__(capsule)`` puts all examples of one pass,
in a thread of its own. It may have a ``__len__``, the number of examples of a pass, and a
``set_epoch``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pyecho._core import CheckpointError, ConfigError
from pyecho.items.nest import leaves_of, map_nest
from pyecho.items.spec import Field
from pyecho.source.base import Pass, Source
from pyecho.source.sniff import length_of


class Native(Source):
    """A native source. It is skipped by dropping the examples that it puts."""

    native = _by_index = True

    def _open(self, at: int) -> Pass:
        return Pass(NativePass(self.object, at))  # which the native stage runs

    def _length(self) -> int | None:
        return length_of(self.object)

    def split_lists(self) -> None:
        """Refuse to."""
        raise ConfigError(
            f"the source ({type(self.object).__name__}) fills slots with examples itself, so "
            "unbatch='lists' has no list to split; leave it out"
        )

    def example(self) -> Any:
        """Return an example, with zeros, as `__pyecho_spec__` describes it."""
        describe = getattr(self.object, "__pyecho_spec__", None)
        if not callable(describe):
            raise ConfigError(
                f"the source ({type(self.object).__name__}) has __pyecho_feed__ and so fills slots "
                "itself; it also needs __pyecho_spec__(), which returns the nest of pyecho.Field "
                "of an example"
            )
        spec = describe()
        for field in leaves_of(spec):
            if not isinstance(field, Field) or field.by_reference:
                raise ConfigError(
                    "__pyecho_spec__() must return a nest of pyecho.Field with a shape and a dtype "
                    f"of numbers, got {field!r} in it"
                )
        return map_nest(lambda field: np.zeros(field.shape, field.dtype), spec)


class NativePass(Iterator[Any]):
    """One pass over a native source, of which the first `start` examples are dropped.

    Stands where passes over other sources are iterators; the native stage knows the difference.
    """

    def __init__(self, source: Any, start: int) -> None:
        self.start = start
        self.__pyecho_feed__ = source.__pyecho_feed__

    def __next__(self) -> Any:
        """Refuse to yield an item."""
        raise CheckpointError(
            "a native source (one with __pyecho_feed__) cannot yield single examples again; load a "
            "state that was taken with state_dict(payload=True)"
        )
