"""Map-style datasets, which are read by index."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from pyecho.source.base import Source
from pyecho.source.lengths import length_of
from pyecho.source.reader import Indexed


class Mapped(Source):
    """A source that only has items by index, 0 to ``len() - 1``.

    Its position is the index: a state of its own is not asked for.
    """

    def __init__(self, given: Any, *, unbatch: bool) -> None:
        super().__init__(given)
        self.batched = unbatch
        self.indexed = not unbatch  # where a row is depends on the batches before it

    def read(self, start: int = 0) -> Iterator[Any]:
        """Begin one pass."""
        return read_by_index(self.object, start)

    def length(self) -> int | None:
        """Return ``len()``; examples of batches are unknown."""
        return length_of(self.object) if self.indexed else None


def is_map_style(source: Any) -> bool:
    """Return True if a source has items by index, and no better way to iterate them."""
    iterate = getattr(type(source), "__iter__", None)
    return iterate in (None, Sequence.__iter__) and length_of(source) is not None


def read_by_index(source: Any, start: int) -> Iterator[Any]:
    """Return a reader of the items from number `start` on."""
    return Indexed(partial(operator.getitem, source), start, len(source))
