"""What pyecho must emit, in plain Python: slow, short, and to be checked by eye.

Nothing in here knows of threads, memory or time. `uses` says in which order the uses of items are
emitted; `batches` cuts them into batches. Both speak of items by their number in source order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

MASK = 2**64 - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15
DRAW_STREAM, FACTOR_STREAM = 1, 2


class Use(NamedTuple):
    """One emission: the item's number in source order, and which use of it this is."""

    item: int
    use: int


# ---------------------------------------------------------------- random numbers


def mix64(z: int) -> int:
    """SplitMix64's finaliser."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def stream_key(seed: int, epoch: int, stream: int) -> int:
    of_seed = mix64((seed + GOLDEN_GAMMA) & MASK)
    of_epoch = mix64((of_seed + epoch + GOLDEN_GAMMA) & MASK)
    return mix64((of_epoch + stream * GOLDEN_GAMMA) & MASK)


def unit_at(key: int, counter: int) -> float:
    """The counter-th number in [0, 1) of a stream."""
    return (mix64((key + (counter + 1) * GOLDEN_GAMMA) & MASK) >> 11) * 2.0**-53


def rotated_left(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & MASK


class Xoshiro256:
    """xoshiro256**, and a draw below a bound that is equally likely for each outcome."""

    def __init__(self, key: int) -> None:
        self.state = [mix64((key + (word + 1) * GOLDEN_GAMMA) & MASK) for word in range(4)]

    def next(self) -> int:
        s = self.state
        result = (rotated_left((s[1] * 5) & MASK, 7) * 9) & MASK
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotated_left(s[3], 45)
        return result

    def below(self, bound: int) -> int:
        """Lemire's method: the high half of a product, unless its low half favours an outcome."""
        refused_below = (2**32 - bound) % bound
        while True:
            product = (self.next() >> 32) * bound
            if product % 2**32 >= refused_below:
                return product >> 32


# ---------------------------------------------------------------- how often


def uses_of(item: int, factor: float, seed: int = 0, epoch: int = 0) -> int:
    """How often an item is emitted. The fraction is a chance that every item has on its own."""
    whole = math.floor(factor)
    lucky = unit_at(stream_key(seed, epoch, FACTOR_STREAM), item) < factor - whole
    return whole + (1 if lucky else 0)


# ---------------------------------------------------------------- in which order


class Pool:
    """Distinct items, and one entry for each use they still have."""

    def __init__(self, items: int, factor: float, capacity: int, seed: int, epoch: int) -> None:
        self.source = iter(range(items))
        self.ended = False
        self.capacity = capacity
        self.uses_of: Callable[[int], int] = lambda item: uses_of(item, factor, seed, epoch)
        self.random = Xoshiro256(stream_key(seed, epoch, DRAW_STREAM))
        self.left: dict[int, int] = {}  # uses left of each resident item
        self.drawn: dict[int, int] = {}  # uses made of each item
        self.entries: list[int] = []  # what a draw chooses from
        self.deferred: list[int] = []  # entries that wait for the next batch

    def begin_batch(self) -> None:
        self.entries += self.deferred
        self.deferred = []

    def admit(self) -> None:
        """Take items from the source until the pool is full or the source has ended."""
        while not self.ended and len(self.left) < self.capacity:
            item = next(self.source, None)
            if item is None:
                self.ended = True
                return
            self.left[item] = self.uses_of(item)
            self.drawn[item] = 0
            self.entries += [item] * self.left[item]

    def draw(self, refused: set[int]) -> Use | None:
        """Choose among all entries whose item is not refused; None if there is none."""
        while self.entries:
            # A pool of one item has nothing to choose, and no number is drawn for it.
            position = self.random.below(len(self.entries)) if self.capacity > 1 else 0
            item = self.entries[position]
            self.entries[position] = self.entries[-1]  # swap-remove
            self.entries.pop()
            if item in refused:
                self.deferred.append(item)
                continue
            use = self.drawn[item]
            self.drawn[item] += 1
            self.left[item] -= 1
            if self.left[item] == 0:
                del self.left[item]
            return Use(item, use)
        return None


def uses(
    items: int, *, factor: float, capacity: int = 1, seed: int = 0, epoch: int = 0
) -> list[Use]:
    """Batch echoing: every use of every item of an epoch, in order."""
    return [use for batch in batches(items, 1, factor, capacity, seed, epoch) for use in batch]


# ---------------------------------------------------------------- in which batch


def batches(
    items: int,
    batch_size: int,
    factor: float,
    capacity: int = 1,
    seed: int = 0,
    epoch: int = 0,
    unique_in_batch: bool = False,
    drop_last: bool = False,
) -> list[list[Use]]:
    """Example echoing: the batches of an epoch, each a list of uses."""

    def made() -> Iterator[list[Use]]:
        pool = Pool(items, factor, max(1, capacity), seed, epoch)
        while True:
            pool.begin_batch()
            pool.admit()
            if not pool.left:
                return
            batch: list[Use] = []
            while len(batch) < batch_size:
                pool.admit()
                refused = {use.item for use in batch} if unique_in_batch else set()
                use = pool.draw(refused)
                if use is None:
                    break
                batch.append(use)
            yield batch

    whole = batch_size if drop_last else 1
    return [batch for batch in made() if len(batch) >= whole]
