"""Orders in which a source with items by index is read: as they are, shuffled, or a sampler's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from pyecho import _core
from pyecho._core import ConfigError, EchoError
from pyecho.source.reader import Indexed
from pyecho.source.sniff import length_of, tell_epoch
from pyecho.warn import warn

_Read = tuple[list[Any], list[Any]]
_Caller = Callable[[Callable[[], _Read]], _Read]

BLOCK = 1024
"""Indices that are computed, or taken from a sampler, at a time."""


class Order:
    """Indices of a source, from the first to the last or shuffled, of which one rank has its part.

    Rank r of R has the places r, r + R, ... of the whole order. A shuffled order is a permutation
    that (seed, epoch) selects; it is computed place by place, so nothing of it is held.
    """

    def __init__(
        self, count: Callable[[], int], *, seed: int | None = None, rank: int = 0, ranks: int = 1
    ) -> None:
        self._count = count  # of the items of the source
        self._seed = seed  # None: not shuffled
        self._rank = rank
        self._ranks = ranks
        self._epoch = 0

    @property
    def is_whole(self) -> bool:
        """True if an epoch has each index of the source."""
        return self._ranks == 1

    def length(self) -> int | None:
        """Return the number of indices in an epoch."""
        return len(range(self._rank, self._count(), self._ranks))

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next `indices`."""
        self._epoch = epoch

    def block(self, begin: int, end: int) -> Any:
        """Return the indices at the places from `begin` to before `end`, as an array or range."""
        places = range(self._rank, self._count(), self._ranks)[begin:end]
        if self._seed is None:
            return places
        count = self._count()
        last = min(places.stop, count)
        first = min(places.start, last)
        return _core.permuted(count, self._seed, self._epoch, first, last, self._ranks)

    def indices(self, start: int) -> Iterator[Any]:
        """Return the indices of the epoch from place `start` on, by a reader."""
        if self._seed is None:
            places = range(self._rank, self._count(), self._ranks)
            return Indexed(places.__getitem__, start, len(places))
        return _Blocks(lambda begin: self.block(begin, begin + BLOCK).tolist(), start)


class Sampled:
    """The indices that a sampler yields, any iterable: they must be the same again for an epoch.

    Random functions of torch draw from a generator that (seed, epoch) seeds while it is read, so
    that samplers of torch without a generator of their own keep to that.
    """

    is_whole = False  # that is known

    def __init__(self, sampler: Any, seed: int) -> None:
        if isinstance(sampler, Iterator) or not hasattr(type(sampler), "__iter__"):
            kind = type(sampler).__name__
            raise ConfigError(
                f"sampler must be an iterable of indices that can be read again, got {kind}; pass "
                "a list, a sampler of torch, or an object with __iter__ and __len__"
            )
        self._sampler = sampler
        self._seed = seed
        self._epoch = 0

    def length(self) -> int | None:
        """Return the length of the sampler, None if it tells none."""
        return length_of(self._sampler)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next `indices`, and tell the sampler."""
        self._epoch = epoch
        tell_epoch(self._sampler, epoch)

    def indices(self, start: int) -> Iterator[Any]:
        """Return the indices of the epoch from place `start` on, by a reader."""
        return _Blocks(_SamplerPass(self._sampler, self._seeded()), start)

    def _seeded(self) -> _Caller:
        if sys.modules.get("torch") is None:
            return lambda function: function()
        from pyecho.torch.random import SeededTorch

        bits = _core.permuted(2**62, self._seed, self._epoch, 0, 1, 1)
        return SeededTorch(lambda: int(bits[0])).call


class _SamplerPass:
    """Reads blocks of a sampler's indices, each after the other; from the beginning if need be."""

    def __init__(self, sampler: Any, seeded: _Caller) -> None:
        self._sampler = sampler
        self._seeded = seeded
        self._items: Any = None
        self._told = length_of(sampler)

    def __call__(self, begin: int) -> list[Any]:
        """Return the block at place `begin`, which is empty at the end."""
        most = BLOCK if self._told is None else max(0, min(BLOCK, self._told - begin))
        try:
            block, ahead = self._seeded(partial(self._read, begin, most))
        except BaseException:
            self._items = None  # Ctrl-C has ended a generator for good: the next call begins again
            raise
        if len(block) < most and self._told is not None:
            raise EchoError(
                f"the sampler ({type(self._sampler).__name__}) has ended after "
                f"{begin + len(block)} indices, and its length was {self._told}; have len() tell "
                "how many there are"
            )
        if ahead:
            warn(
                f"the sampler ({type(self._sampler).__name__}) has more than the {self._told} "
                "indices it tells: the rest is left out; have len() tell how many there are",
                RuntimeWarning,
            )
        return block

    def _read(self, begin: int, most: int) -> _Read:
        if self._items is None:
            items = iter(self._sampler)
            for _ in islice(items, begin):
                pass
            self._items = items
        return list(islice(self._items, most)), [] if most else list(islice(self._items, 1))


class _Blocks(Iterator[Any]):
    """Yields what blocks hold, from place `start` on, until one is empty."""

    def __init__(self, read: Callable[[int], list[Any]], start: int) -> None:
        self._read = read
        self._place = start
        self._block: list[Any] = []
        self._end = start  # of the block

    def __next__(self) -> Any:
        """Return the next index."""
        place = self._place
        if place >= self._end:
            block = self._read(place)
            end = place + len(block)
            self._block = block
            self._end = end
        if place >= self._end:
            raise StopIteration
        index = self._block[place - self._end]
        self._place = place + 1
        return index
