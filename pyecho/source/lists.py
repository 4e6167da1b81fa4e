"""The lists of indices of a pass over a `DataLoader`: the ones to load, counted; its samplers."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from pyecho.items.rows import rows_of
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
    """The lists of indices of a pass that are kept; the pass is drawn with the first of them.

    With `again` a list whose items were not loaded (Ctrl-C) is yielded once more after `failed()`.
    """

    def __init__(
        self,
        draw: Callable[[], Iterator[Any]],
        keep: Callable[[int, int], bool],
        drawn: Callable[[], None],
        *,
        by_row: bool,
        again: bool,
    ) -> None:
        self._draw = draw
        self._keep = keep
        self._drawn = drawn  # called at the end, once
        self._is_over = False
        self._by_row = by_row
        self._lists: Iterator[Any] | None = None
        self._drawing: list[Any] = []
        self._count = 0  # of the lists before
        self._again = again
        self._following: list[Any] = []
        self._loading: list[Any] = []
        self.sizes: list[int] = []
        """Rows of the lists that were yielded, for `Loaded`."""
        self.row = 0
        """Rows (batches, if these are the items) before the next list."""

    def __next__(self) -> Any:
        """Return the next list that is kept."""
        if not self._following:
            self._following.append(self._read())
        if self._again:
            self._loading[:] = self._following
        following = self._following[0]
        del self._following[0]
        return following

    def loaded(self) -> None:
        """Know that the items of the last list were loaded."""
        self._loading.clear()

    def failed(self) -> None:
        """Go back to the last list, if its items were not loaded."""
        self._following.extend(self._loading)
        self._loading.clear()

    def _read(self) -> Any:
        if self._lists is None:
            self._lists = self._drawn_again()
        while self._drawing or self._draws():
            each, begin = self._drawing[0], self.row
            end = begin + (len(each) if self._by_row else 1)
            keeps = self._keep(begin, end)
            # No call from here on, so that Ctrl-C finds all of it done or nothing.
            del self._drawing[0]
            self.row = end
            self._count += 1
            if keeps:
                if self._by_row:
                    self.sizes = [*self.sizes, end - begin]
                return each
        if not self._is_over:
            self._drawn()
        self._is_over = True
        raise StopIteration

    def _draws(self) -> bool:
        """Draw a list, and keep it. Return False if there is none."""
        assert self._lists is not None
        try:
            self._drawing.extend(itertools.islice(self._lists, 1))
        except BaseException:
            if not self._drawing:
                self._lists = None  # a generator, which PyTorch's samplers have, is over for good
            raise
        return bool(self._drawing)

    def _drawn_again(self) -> Iterator[Any]:
        """Begin the pass, and go to where it was."""
        lists = self._draw()
        for _ in itertools.islice(lists, self._count):
            pass
        return lists

    def look(self) -> None:
        """Skip to the first list now, unless a worker has it already."""
        if self._lists is None:
            with suppress(StopIteration):
                self._following.append(self._read())


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
            try:
                self._taken.extend(itertools.islice(self._items, 1))
            except BaseException:
                if not self._taken:
                    self._lists.failed()
                raise
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


class SeededLists(Iterator[Any]):
    """The lists of a sampler; `call` calls each step with a seeded generator of pyecho's."""

    def __init__(self, sampler: Any, call: Callable[[Callable[[], Any]], Any]) -> None:
        self._sampler = sampler
        self._call = call
        self._items: Iterator[Any] | None = None
        self._drawn: list[Any] = []

    def __next__(self) -> Any:
        """Return the next list."""
        if not self._drawn:
            self._call(self._draw)
        if not self._drawn:
            raise StopIteration
        drawn = self._drawn[0]
        del self._drawn[0]
        return drawn

    def _draw(self) -> None:
        if self._items is None:
            self._items = iter(self._sampler)
        self._drawn.extend(itertools.islice(self._items, 1))


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
