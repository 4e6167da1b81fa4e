"""The lists of indices of a pass over a `DataLoader`: the ones to load, counted; its samplers."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pyecho._core import CheckpointError
from pyecho.items.rows import rows_of
from pyecho.source.iterable import batch_of
from pyecho.source.sampler_reader import SamplerReader

INNER = "sampler", "batch_sampler"
"""Attributes of a sampler that are samplers."""


class StandIn:
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
        drawn: SamplerReader,
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


# ------------------------------------------------------------ samplers


def samplers_in(sampler: Any) -> Iterator[Any]:
    """Yield a sampler and those inside it."""
    yield sampler
    for name in INNER:
        if (inner := getattr(sampler, name, None)) is not None:
            yield from samplers_in(inner)


def generators_in(sampler: Any) -> list[Any]:
    """Return the generators, and seeds of generators, that samplers were given."""
    given: list[Any] = []
    for each in samplers_in(sampler):
        if type(seed := getattr(each, "initial_seed", None)) is int and 0 <= seed < 2**64:
            given.append(_Seed(each))
        if isinstance(generator := getattr(each, "generator", None), torch().Generator):
            given.append(generator)
    return given


def with_generator(sampler: Any, generator: Any) -> Any:
    """Return the sampler, or a shallow copy in which it, and those inside, have a generator."""
    changes: dict[str, Any] = {}
    if getattr(sampler, "generator", sampler) is None:
        changes["generator"] = generator
    for name in INNER:
        if (inner := getattr(sampler, name, None)) is not None:
            made = with_generator(inner, generator)
            if made is not inner:
                changes[name] = made
    if not changes:
        return sampler
    made = copy.copy(sampler)
    for name, value in changes.items():
        object.__setattr__(made, name, value)
    return made


def is_known(sampler: Any) -> bool:
    """Return True if a sampler, with all inside, draws from nothing but its generator."""
    return all(
        isinstance(each, list | tuple | range)
        or type(each).__module__.startswith("torch.utils.data.")
        for each in samplers_in(sampler)
    )


def restore(generator: Any, state: Any) -> None:
    """Have a generator go on from a state; `CheckpointError` if it is none."""
    try:
        generator.set_state(state)
    except (RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the state of the DataLoader's generator cannot be restored ({error}); load an "
            "earlier one"
        ) from error


def drawn_from(generator: Any) -> int:
    """Draw a number of 63 bits; None: from PyTorch's global generator."""
    number = torch().empty((), dtype=torch().int64, device="cpu")
    return int(number.random_(generator=generator))


def states_of(generators: list[Any]) -> list[Any]:
    """Return the state of each generator."""
    return [each.get_state() for each in generators]


def torch() -> Any:
    """Return PyTorch, which the program has imported."""
    return sys.modules["torch"]


class _Seed:
    """The seed that a sampler gives its generator in every pass (Accelerate's), as a generator."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def get_state(self) -> Any:
        return torch().from_numpy(np.array([self._sampler.initial_seed], "u8").view("u1"))

    def set_state(self, state: Any) -> None:
        [seed] = state.numpy().view("u8")
        self._sampler.initial_seed = int(seed)
