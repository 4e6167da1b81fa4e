"""A model of pyecho's output in plain Python: slow, and short enough to check by eye.

There are no threads, memory or time in here. `iterations` yields the uses of each batch of each
iteration. An item is represented by its number in its pass over the source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain, count
from typing import NamedTuple

MASK = 2**64 - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15
DRAW_STREAM, FACTOR_STREAM = 1, 2


class Use(NamedTuple):
    """One emission: the item's number in its pass, and the number of the use."""

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
    """xoshiro256**, with uniform draws below a bound."""

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
        """Lemire's method: the high half of a product, redrawn if its low half would cause bias."""
        refused_below = (2**32 - bound) % bound
        while True:
            product = (self.next() >> 32) * bound
            if product % 2**32 >= refused_below:
                return product >> 32


# ---------------------------------------------------------------- how often


def uses_of_pass(items: int, factor: float) -> int:
    """Return the number of uses of a whole pass."""
    return math.floor(items * factor + 0.5)


def more_among(items: int, factor: float) -> int:
    """Return how many of the first `items` items get one more use."""
    return uses_of_pass(items, factor) - items * math.floor(factor)


def uses_of_items(items: int, factor: float, seed: int, number: int, known: bool) -> Iterator[int]:
    """Yield the number of uses of each item of pass `number`.

    If the number of items is known beforehand, any of them may get one more use (Knuth's algorithm
    S). Otherwise the additional uses are spread evenly.
    """
    whole = math.floor(factor)
    key = stream_key(seed, number, FACTOR_STREAM)
    missing = more_among(items, factor)
    for item in range(items):
        if known:
            more = unit_at(key, item) * (items - item) < missing
        else:
            more = more_among(item + 1, factor) > more_among(item, factor)
        missing -= more
        yield whole + more


# ---------------------------------------------------------------- in which order


def with_end(uses: Iterable[int]) -> Iterator[tuple[int | None, int]]:
    """Yield every item of a pass with its uses, then None for the end."""
    yield from enumerate(uses)
    yield None, 0


class Pool:
    """Distinct items, and one entry for each use they still have."""

    def __init__(self, passes: Iterable[Iterable[int]], capacity: int) -> None:
        self.source = chain.from_iterable(map(with_end, passes))
        self.next = next(self.source, None)
        self.capacity = capacity
        self.admitted = 0  # uses of all items so far
        self.pass_ends: list[int] = []  # uses of all items up to the end of each pass
        self.emitted = 0  # uses so far
        self.items: list[list[int]] = []  # number in its pass, uses left, uses made
        self.resident: set[int] = set()  # indices of `items`
        self.entries: list[int] = []  # one per remaining use: indices of `items`
        self.deferred: list[int] = []  # entries deferred to the next batch

    def admit(self) -> None:
        """Take items from the source until the pool is full or the source has ended."""
        while self.next is not None:
            item, uses = self.next
            if item is None:
                self.pass_ends.append(self.admitted)
            elif len(self.resident) == self.capacity:
                return
            else:
                self.resident.add(len(self.items))
                self.entries += [len(self.items)] * uses
                self.items.append([item, uses, 0])
                self.admitted += uses
            self.next = next(self.source, None)

    def draw(self, random: Xoshiro256, batch: list[int]) -> int | None:
        """Choose among all entries whose item is not in `batch`; None if there is none."""
        while self.entries:
            position = random.below(len(self.entries))
            index = self.entries[position]
            self.entries[position] = self.entries[-1]  # swap-remove
            self.entries.pop()
            if index not in batch:
                return index
            self.deferred.append(index)
        return None

    def use(self, index: int) -> Use:
        item = self.items[index]
        item[1] -= 1
        item[2] += 1
        if item[1] == 0:
            self.resident.remove(index)
        self.emitted += 1
        return Use(item[0], item[2] - 1)


# ---------------------------------------------------------------- in which batch and iteration


def iterations(
    passes: Iterable[int],
    *,
    factor: float,
    capacity: int = 1,
    batch_size: int = 1,
    unique_in_batch: bool = False,
    drop_last: bool = False,
    seed: int = 0,
    epoch: int = 0,
    steps: int | None = None,
    known: bool = True,
) -> Iterator[list[list[Use]]]:
    """Yield the batches of each iteration over passes that flow into each other.

    Parameters
    ----------
    passes
        How many items each pass has.
    steps
        Batches of an iteration; None: as many as the uses of a pass make.
    known
        True if the number of items is known before a pass is read.
    """
    pool = Pool(
        (
            uses_of_items(items, factor, seed, number, known)
            for number, items in enumerate(passes, epoch)
        ),
        max(1, capacity),
    )
    for iteration in count():
        random = Xoshiro256(stream_key(seed, epoch + iteration, DRAW_STREAM))
        begin = pool.emitted

        def left(begin: int = begin, iteration: int = iteration) -> float:
            if steps is not None:
                return begin + steps * batch_size - pool.emitted
            ends = pool.pass_ends
            return ends[iteration] - pool.emitted if iteration < len(ends) else math.inf

        batches = []
        while True:
            pool.entries += pool.deferred
            pool.deferred = []
            drawn: list[int] = []
            batch = []
            while len(batch) < batch_size and left() > 0:
                pool.admit()
                if left() == 0:  # a pass without items
                    break
                index = pool.draw(random, drawn if unique_in_batch else [])
                if index is None:
                    break
                drawn.append(index)
                batch.append(pool.use(index))
            if not batch:
                break
            if len(batch) == batch_size or not drop_last:
                batches.append(batch)
        yield batches
        if (
            pool.next is None
            and not pool.resident
            and (steps or iteration + 1 == len(pool.pass_ends))
        ):
            return
