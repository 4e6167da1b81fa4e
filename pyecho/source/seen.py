"""Samples digests of the items of a source, so that a resume can tell that their order has changed.

Only sources that are read again need them. A pass has up to 32 samples, evenly spread over what was
read: the items 0, s, 2s, ..., where s doubles whenever there are as many. The reader takes them, so
no item is kept, and no later change of one matters.

A sample has a checksum for each leaf of an item. A shuffled order changes all of them but the ones
that are always alike; random augmentation leaves labels or keys as they are. So the order is the
same if one leaf is in all samples, of the ones that vary.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pyecho import _core
from pyecho._core import CheckpointError
from pyecho.items.nest import leaves_of
from pyecho.warn import warn

MOST_SAMPLES = 32
MOST_LEAVES = 8
MOST_LOOKED_AT = 64
KEPT_PASSES = 2

Digest = tuple[list[int], bool]

_REMEDY = (
    "its order is not the same in every process. Seed it: WebDataset(..., seed=) and "
    "shuffle(..., seed=); a DataLoader over an IterableDataset, or with an __iter__ of its "
    "own: generator=, or torch.manual_seed at the same place; samplers and datasets with "
    "set_epoch(): by its epoch; or have the source go on by a state_dict and load_state_dict"
)


class Seen:
    """The samples of the passes that were read last, and the ones that a state expects."""

    def __init__(self) -> None:
        self.epoch = 0
        """Of the pass that begins next."""
        self.shared = False
        """True if the state is that of another process, with items of its own."""
        self._passes: dict[int, tuple[int, list[list[int]]]] = {}  # by epoch: the step, samples
        self._expected: dict[int, tuple[int, list[list[int]]]] = {}  # likewise

    def watched(self, items: Iterator[Any], digest: Callable[[Any], Digest]) -> Samples:
        """Begin a pass."""
        return Samples(items, digest, self)

    def state(self) -> list[list[Any]]:
        """Return what a state holds: [[epoch, step, samples], ...]."""
        return [[epoch, step, samples] for epoch, (step, samples) in self._passes.items()]

    def expect(self, state: list[list[Any]]) -> None:
        """Have passes that begin be those of a state, until `forget`."""
        self._passes = {epoch: (step, samples) for epoch, step, samples in state}
        self._expected = {} if self.shared else self._passes

    def forget(self) -> None:
        """Expect nothing of passes that begin from now on."""
        self._expected = {}

    def expected(self) -> tuple[int, list[list[int]]] | None:
        """Return the samples that the pass must have."""
        return self._expected.get(self.epoch)

    def keep(self, epoch: int, step: int, samples: list[list[int]]) -> None:
        """Remember the samples of a pass."""
        passes = {**self._passes, epoch: (step, samples)}
        self._passes = dict(sorted(passes.items())[-KEPT_PASSES:])


class Samples(Iterator[Any]):
    """The items of a pass, of which samples are taken, and compared with those of a state."""

    def __init__(self, items: Iterator[Any], digest: Callable[[Any], Digest], seen: Seen) -> None:
        self._items = items
        self._digest = digest
        self._seen = seen
        self._epoch = seen.epoch
        self._index = self._due = 0
        self._step = 1
        self._samples: list[list[int]] = []
        self._taken: list[Any] = []
        expected = seen.expected()
        self._expected = expected
        self._alike: Any = None  # the leaves that were alike so far
        if expected is not None:
            rows = np.array(expected[1])
            varies = (rows != rows[:1]).any(0)
            self._alike = varies if varies.any() else rows[0] != 0
        self._find_due()

    def __next__(self) -> Any:
        """Return the next item."""
        if not self._taken and self._index != self._due:
            for item in self._items:
                self._index += 1
                return item
            raise StopIteration
        if not self._taken:
            self._taken.extend(itertools.islice(self._items, 1))
        if not self._taken:
            raise StopIteration
        item = self._taken[0]
        self._sample(item)
        self._find_due()
        self._index += 1
        del self._taken[0]
        return item

    def _sample(self, item: Any) -> None:
        index, samples, step = self._index, self._samples, self._step
        found, has_key = self._digest(item)
        if self._expected is not None and index % self._expected[0] == 0:
            self._compare(index // self._expected[0], found, has_key=has_key)
        if index != step * len(samples):
            return
        samples = [*samples, found]
        if len(samples) == MOST_SAMPLES:
            samples, step = samples[::2], 2 * step
        self._samples, self._step = samples, step
        self._seen.keep(self._epoch, step, samples)

    def _find_due(self) -> None:
        due = self._step * len(self._samples)
        if self._expected is not None:
            step, rows = self._expected
            following = (self._index // step + 1) * step if self._taken else 0
            if following < step * len(rows):
                due = min(due, following)
        self._due = due

    def _compare(self, number: int, found: list[int], *, has_key: bool) -> None:
        assert self._expected is not None
        step, rows = self._expected
        if number >= len(rows):
            return
        self._alike = self._alike & (np.array(rows[number]) == found)
        if self._alike.any():
            return
        what = f"item {number * step} of epoch {self._epoch} is another one than when the state "
        if has_key:
            raise CheckpointError(f"{what}was taken: the source yields others, or {_REMEDY}")
        self._expected = None
        warn(
            f"{what}was taken, by random augmentation or because {_REMEDY}. Labels or keys, as "
            "whole numbers or texts beside the items, tell one from the other",
            RuntimeWarning,
        )


def digest_of_item(item: Any) -> Digest:
    """Return checksums of the leaves of an item, and whether one of them is like a key.

    Labels and keys come first: whole numbers and texts, with at most one axis. Objects count by
    their type.
    """
    arrays = [_array_of(leaf) for leaf in leaves_of(item)[:MOST_LOOKED_AT]]
    keys = [array for array in arrays if array.dtype.kind in "iubUS" and array.ndim <= 1]
    others = [array for array in arrays if array.dtype.kind not in "iubUS" or array.ndim > 1]
    found = [_checksum(array) for array in [*keys, *others][:MOST_LEAVES]]
    return [*found, *[0] * (MOST_LEAVES - len(found))], bool(keys)


def digest_of_list(indices: Any) -> Digest:
    """Return the checksum of a list of indices, in the form of `digest_of_item`."""
    return [_checksum(np.array(repr(indices))), *[0] * (MOST_LEAVES - 1)], True


def _array_of(leaf: Any) -> Any:
    if isinstance(leaf, bytes | bytearray):
        return np.frombuffer(leaf, np.uint8)
    if isinstance(leaf, bool | int):
        return np.array(leaf if -(2**63) <= leaf < 2**63 else str(leaf))
    if isinstance(leaf, str | float | complex):
        return np.array(leaf)
    try:
        if callable(getattr(leaf, "detach", None)):  # a tensor
            leaf = leaf.detach().cpu().resolve_conj().resolve_neg().contiguous()
            if leaf.element_size() == 2 and leaf.is_floating_point():  # bfloat16, too
                leaf = leaf.view(sys.modules["torch"].int16).reshape(1, 1, -1)
        if getattr(leaf, "shape", None) is not None:
            array = np.asarray(leaf)
            if not array.dtype.hasobject:
                return array
    except (TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError):
        pass
    kind = type(leaf).__qualname__
    return np.frombuffer(kind.encode(), np.uint8).reshape(1, 1, -1)  # no key


def _checksum(array: Any) -> int:
    array = np.ascontiguousarray(array)
    return int(_core.checksum(array.reshape(-1).view(np.uint8))) >> 2 | 1  # 0: no leaf
