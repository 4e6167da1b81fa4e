"""Sources some of whose items are lists of examples (``unbatch="lists"``)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from pyecho._core import ConfigError
from pyecho.source.arrays import Arrays
from pyecho.source.reader import Chained, Source


def flattened(inner: Source) -> Source:
    """Return a source that yields the parts of each item that is a list, instead of the list."""
    if inner.native:
        raise ConfigError(
            f"the source ({type(inner.object).__name__}) fills slots with examples itself, so "
            "unbatch='lists' has no list to split; leave it out"
        )
    rows = inner.batched or isinstance(inner, Arrays)  # no row of an array is a list
    return inner if rows else Flattened(inner)


class Flattened(Source):
    """Yields the examples of lists. How many there are shows only when they are read.

    So it is read from its beginning again where a state goes on; a state of the source's own is
    of no use, because it counts items.
    """

    def __init__(self, inner: Source) -> None:
        super().__init__(inner.object)
        self.in_memory = inner.in_memory
        self.one_shot = inner.one_shot
        self._inner = inner
        self.seen = inner.seen

    def read(self, start: int = 0) -> Iterator[Any]:
        """Begin one pass."""
        items = self._inner.read()
        self.one_shot = self._inner.one_shot
        return Chained(items, _parts)

    def length(self) -> int | None:
        """Return None."""
        return None

    def set_epoch(self, epoch: int) -> None:
        """Tell the source."""
        self._inner.set_epoch(epoch)

    def order(self, following: int | None) -> dict[str, Any] | None:
        """Return that of its source."""
        return self._inner.order(following)

    def set_order(self, order: dict[str, Any] | None) -> None:
        """Have its source be in this order."""
        self._inner.set_order(order)

    def prepare(self) -> None:
        """Start its workers."""
        self._inner.prepare()

    def begun(self) -> None:
        """Tell its source."""
        self._inner.begun()

    def close(self) -> None:
        """End its workers."""
        self._inner.close()

    def join(self, seconds: float) -> None:
        """Wait for their end."""
        self._inner.join(seconds)

    def __getstate__(self) -> dict[str, Any]:
        """Have a copy with a source of its own."""
        inner = copy.copy(self._inner)
        return {**self.__dict__, "_inner": inner, "seen": inner.seen}


def _parts(item: Any) -> list[Any]:
    return item if isinstance(item, list) else [item]
