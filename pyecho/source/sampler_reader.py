"""Reads samplers: a generator that Ctrl-C has ended is begun again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

BLOCK = 1024
"""Indices that are computed, or taken from a sampler, at a time."""

Caller = Callable[[Callable[[], Any]], Any]
"""Calls a function with PyTorch's random functions seeded."""


class Begun(NamedTuple):
    """A reading of a sampler that begins."""

    iterate: Callable[[], Iterator[Any]]
    call: Caller | None = None  # calls each step


class SamplerReader:
    """Blocks of what a sampler yields, read one after the other; the last one may be asked again.

    An exception (Ctrl-C) may end a generator for good: then the sampler is read from its beginning.
    """

    def __init__(self, begin: Callable[[], Begun]) -> None:
        self._begin = begin
        self._place = self._following = -1  # of the last block, and after it; -1: unknown

    def __call__(self, place: int, most: int) -> list[Any]:
        """Return what is at this place and after it, nothing at the end."""
        if place != self._place:
            if place != self._following:
                self._iterate, self._call = self._begin()
                self._items: Iterator[Any] | None = None
            self._place = self._following = -1
            block: list[Any]
            if self._call is None:
                block = self._read(place, most)
            else:
                block = self._call(partial(self._read, place, most))
            self._block = block
            self._place, self._following = place, place + len(block)
        return self._block

    def _read(self, place: int, most: int) -> list[Any]:
        if self._items is None:
            self._items = self._iterate()
            for _ in islice(self._items, place):
                pass
        return list(islice(self._items, most))
