"""The lists of indices of a pass over a `DataLoader`: the ones to load, counted; its samplers."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pyecho.items.rows import rows_of
from pyecho.source.drawn import Drawn
from pyecho.source.iterable import batch_of


class Order:
    """Stands for the sampler of a `DataLoader`: yields the `lists` of the pass that begins."""

    lists: Lists | None = None

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        """Return the lists of the pass."""
        return iter(()) if self.lists is None else self.lists

    def __len__(self) -> int:
        """Return the length of the sampler."""
        return len(self._sampler)


class Lists(Iterator[Any]):
    """The lists of indices of a pass that ``keep(begin, end)`` keeps, by the rows of each.

    By batches, unless `by_row`. ``end()`` is called at the end of the pass, once. With `again` a
    list is yielded until its items are `loaded`, which Ctrl-C may cut short.
    """

    def __init__(
        self,
        drawn: Drawn,
        keep: Callable[[int, int], bool],
        end: Callable[[], None],
        *,
        by_row: bool,
        again: bool,
    ) -> None:
        self._drawn = drawn
        self._keep = keep
        self._end = end
        self._by_row = by_row
        self._again = again
        self._is_over = False
        self._has_yielded = False  # the list that follows
        self._count = 0  # of the lists before that
        self._rows = 0  # of that one
        self.row = 0
        """Rows (batches, if these are the items) before it."""
        self.sizes: list[int] = []
        """Rows of the lists that were yielded, for `Loaded`."""

    def __next__(self) -> Any:
        """Return the next list."""
        following = self.look()
        if following is None:
            raise StopIteration
        self._has_yielded = True
        if not self._again:
            self.loaded()
        return following

    def look(self) -> Any:
        """Return the list that follows; None at the end."""
        while block := self._drawn(self._count, 1):
            self._rows = len(block[0]) if self._by_row else 1
            if self._keep(self.row, self.row + self._rows):
                return block[0]
            # No call in between, so that Ctrl-C finds both done or nothing.
            self._count += 1
            self.row += self._rows
        if not self._is_over:
            self._end()
        self._is_over = True
        return None

    def loaded(self) -> None:
        """Go on after the list that was yielded, if not yet."""
        if self._has_yielded:
            if self._by_row:
                self.sizes = [*self.sizes, self._rows]
            self._has_yielded = False
            self._count += 1
            self.row += self._rows


class Loaded(Iterator[Any]):
    """The batches of a pass; calls `uneven` if one has other rows than its list of indices.

    `batched`: as `batch_of` returns them.
    """

    def __init__(
        self, items: Iterator[Any], lists: Lists, uneven: Callable[[], None], *, batched: bool
    ) -> None:
        self._items = items
        self._lists = lists
        self._uneven = uneven
        self._batched = batched
        self._taken: list[Any] = []

    def __next__(self) -> Any:
        """Return the next batch."""
        if not self._taken:
            self._taken.extend(itertools.islice(self._items, 1))
        if not self._taken:
            raise StopIteration
        self._lists.loaded()
        item, sizes = self._taken[0], self._lists.sizes
        if self._batched:
            item = batch_of(item)
        if sizes and rows_of(item) != sizes[0]:
            self._uneven()
        del self._taken[0], sizes[:1]
        return item


def with_generator(sampler: Any, generator: Any, given: list[Any]) -> Any:
    """Return the sampler, or a shallow copy in which it, and those inside, have a generator.

    Appends to `given` the generators, and seeds of generators, that it has already.
    """
    changes: dict[str, Any] = {}
    if type(seed := getattr(sampler, "initial_seed", None)) is int and 0 <= seed < 2**64:
        given.append(_Seed(sampler))
    if hasattr(sampler, "generator"):
        if sampler.generator is None:
            changes["generator"] = generator
        elif isinstance(sampler.generator, sys.modules["torch"].Generator):
            given.append(sampler.generator)
    for name in ("sampler", "batch_sampler"):
        inner = getattr(sampler, name, None)
        if inner is not None:
            made = with_generator(inner, generator, given)
            if made is not inner:
                changes[name] = made
    if not changes:
        return sampler
    made = copy.copy(sampler)
    for name, value in changes.items():
        object.__setattr__(made, name, value)
    return made


class _Seed:
    """The seed that a sampler gives its generator in every pass (Accelerate's), as a generator."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def get_state(self) -> Any:
        return sys.modules["torch"].from_numpy(
            np.array([self._sampler.initial_seed], "u8").view("u1")
        )

    def set_state(self, state: Any) -> None:
        [seed] = state.numpy().view("u8")
        self._sampler.initial_seed = int(seed)


def is_known(sampler: Any) -> bool:
    """Return True if a sampler, with all inside, draws from nothing but its generator."""
    if isinstance(sampler, list | tuple | range):
        return True
    inner = [getattr(sampler, name, None) for name in ("sampler", "batch_sampler")]
    is_own = type(sampler).__module__.startswith("torch.utils.data.")
    return is_own and all(each is None or is_known(each) for each in inner)
