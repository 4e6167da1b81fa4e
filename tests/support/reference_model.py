"""A model of pyecho's output in plain Python: slow, and short enough to check by eye.

There are no threads, memory or time in here. `iterations` yields the uses of each batch of each
iteration, of one rank. An item is represented by its number in its pass over the source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import count, starmap, tee
from typing import Any, NamedTuple

from reference_random import GOLDEN_GAMMA, MASK, Xoshiro256, mix64, stream_key, unit_at

OVER = object()
DRAW_STREAM, FACTOR_STREAM, SEGMENT_STREAM = 1, 2, 5


class Use(NamedTuple):
    """One emission: the item's number in its pass, and the number of the use."""

    item: int
    use: int


# ---------------------------------------------------------------- how often


def uses_of_pass(items: int, factor: float) -> int:
    """Return the number of uses of a whole pass."""
    return math.floor(items * factor + 0.5)


def uses_of_longest(
    items: int, factor: float, *, streams: int = 1, batch_size: int = 1, pad_last: bool = False
) -> int:
    """Return the uses of a pass of each rank, if the longest one has so many items."""
    uses = uses_of_pass(-(-items // streams), factor) * streams
    unit = math.lcm(batch_size, streams) if pad_last else 1
    return -(-uses // unit) * unit


def more_among(items: int, factor: float) -> int:
    """Return how many of the first `items` items get one more use."""
    return uses_of_pass(items, factor) - items * math.floor(factor)


def uses_of_items(
    items: int,
    factor: float,
    seed: int,
    number: int,
    known: bool,
    even: bool = False,
    part: float = math.inf,
) -> Iterator[int]:
    """Yield the number of uses of each item of pass `number`.

    If the number of items is known beforehand, any of them may get one more use: chosen one by one
    (Knuth's algorithm S), or, if `even`, spread evenly from a random item on. Otherwise the
    additional uses are spread evenly from the first item on. After the first joint within a pass,
    each `part` has its share of the uses that are left.
    """
    whole = math.floor(factor)
    key = stream_key(seed, number, FACTOR_STREAM)
    total = wanted = more_among(items, factor)
    given, in_first, end = 0, 0, float(items)
    first = int(unit_at(key, 0) * items) if known and even else 0
    for item in range(items):
        if known and not even:
            if item and item % part == 0:
                in_first = given if item == part else in_first
                end = min(item + part, items)
                share = (end - part) / (items - part) * (total - in_first)
                wanted = in_first + min(total - in_first, int(share + unit_at(key, items)))
            more = unit_at(key, item) * (end - item) < wanted - given
        else:
            place = (first + item) % items
            more = more_among(place + 1, factor) > more_among(place, factor)
        given += more
        yield whole + more


# ---------------------------------------------------------------- in which order


class Joint(NamedTuple):
    """The end of a segment: the pass that follows or goes on, and how many joints it has so far."""

    number: int
    parts: int


def events(
    passes: Iterable[Iterable[int]], epoch: int, items: float, told: int | None, within: bool
) -> Iterator[tuple[int, int] | Joint | None]:
    """Yield every item of each pass with its uses, None for the end of the pass, and the joints.

    A segment ends with a pass, once it has so many items, and within a pass after every multiple.
    `told`: items of a pass, if its uses tell them. `within`: joints may be within passes.
    """
    since: float = 0  # items of the segment
    for number, uses in enumerate(map(list, passes), epoch):
        if since >= items:
            yield Joint(number, 0)
            since = 0
        for item in range(max(len(uses), told or 0)):
            if within and item and item % items == 0 and item < (told or math.inf):
                yield Joint(number, int(item // items))
                since = -item
            if item < len(uses):
                yield item, uses[item]
        yield None
        since += max(1, told or len(uses))


class Stream:
    """Distinct items in a pool, and one entry for each use they still have.

    Parameters
    ----------
    source
        Items and their uses, ends of passes, and joints, as `events` yields them.
    steps
        Uses of an iteration; None: those of a pass.
    """

    def __init__(self, source: Iterator[Any], capacity: int, seed: int, steps: int | None) -> None:
        self.source = source
        self.next = next(source, OVER)
        self.joint: Joint | None = None  # since which no item was admitted
        self.capacity = capacity
        self.seed = seed
        self.steps = steps
        self.admitted = 0  # uses of all items so far
        self.pass_ends: list[int] = []  # uses of all items up to the end of each pass
        self.emitted = 0  # uses so far
        self.items: list[list[int]] = []  # number in its pass, uses left, uses made
        self.resident: set[int] = set()  # indices of `items`
        self.entries: list[int] = []  # one per remaining use: indices of `items`
        self.deferred: list[int] = []  # entries deferred to the next batch
        self.in_batch: set[int] = set()  # indices of `items`
        self.iteration = -1

    def begin_iteration(self, number: int) -> None:
        """Begin the next iteration, whose number selects the draws."""
        self.iteration += 1
        self.begin = self.emitted
        self.random = Xoshiro256(stream_key(self.seed, number, DRAW_STREAM))

    def begin_batch(self) -> None:
        self.entries += self.deferred
        self.deferred, self.in_batch = [], set()

    def left(self) -> float:
        """Return the uses that are left in the iteration, as far as known."""
        if self.steps is not None:
            return self.begin + self.steps - self.emitted
        ends = self.pass_ends
        return ends[self.iteration] - self.emitted if self.iteration < len(ends) else math.inf

    def finished(self) -> bool:
        """Return True if no iteration follows."""
        over = self.steps is not None or self.iteration + 1 == len(self.pass_ends)
        return self.next is OVER and not self.resident and over

    def admit(self) -> None:
        """Take items from the source until the pool is full or the source has ended."""
        while self.next is not OVER:
            if self.next is None:
                self.pass_ends.append(self.admitted)
            elif isinstance(self.next, Joint) and not self.resident:
                self.joint = self.next
            elif isinstance(self.next, Joint) or len(self.resident) == self.capacity:
                return
            else:
                self.begin_segment()
                item, uses = self.next
                self.resident.add(len(self.items))
                self.entries += [len(self.items)] * uses
                self.items.append([item, uses, 0])
                self.admitted += uses
            self.next = next(self.source, OVER)

    def begin_segment(self) -> None:
        """After a joint, draw from other numbers, but for an iteration that begins there too."""
        if self.joint is not None and (self.steps is not None or self.joint.parts):
            key = stream_key(self.seed, self.joint.number, SEGMENT_STREAM)
            self.random = Xoshiro256(mix64((key + self.joint.parts * GOLDEN_GAMMA) & MASK))
        self.joint = None

    def draw(self, unique: bool) -> Use | None:
        """Choose among all entries; None if none is left in the iteration or for the batch."""
        if self.left() > 0:
            self.admit()
        while self.entries and self.left() > 0:
            position = self.random.below(len(self.entries))
            index = self.entries[position]
            self.entries[position] = self.entries[-1]  # swap-remove
            self.entries.pop()
            if not unique or index not in self.in_batch:
                self.in_batch.add(index)
                return self.use(index)
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
    uses: int | None = None,
    capacity: int = 1,
    batch_size: int = 1,
    unique_in_batch: bool = False,
    drop_last: bool = False,
    seed: int = 0,
    epoch: int = 0,
    steps: int | None = None,
    known: bool = True,
    shards: int | None = None,
    rank: int = 0,
    ranks: int = 1,
    segment_uses: int | None = None,
) -> Iterator[list[list[Use]]]:
    """Yield the batches of each iteration of a rank over passes that flow into each other.

    Parameters
    ----------
    passes
        How many items each pass has.
    uses
        Of each pass, in place of what the factor says.
    steps
        Batches of an iteration; None: as many as the uses of a pass make.
    known
        True if the number of items is known before a pass is read.
    shards
        Streams of the whole run, every ranks-th of which is on this rank; None: one for each rank.
    segment_uses
        Uses of a stream in a segment; None: the run has only one.
    """
    count_here = (shards or ranks) // ranks
    items_of_segment = math.inf if segment_uses is None else math.ceil(segment_uses / factor)
    if unique_in_batch and steps is not None:
        items_of_segment = math.inf

    def stream(place: int, passes: Iterable[int]) -> Stream:
        """Deal this stream every count_here-th item of each pass."""
        number = rank + place * ranks
        own_seed = mix64((seed + number * GOLDEN_GAMMA) & MASK) if number else seed

        def uses_of(items: int, number: int) -> Iterator[int]:
            own = len(range(place, items, count_here))
            own_factor = factor
            if uses is not None and uses_of_pass(own, factor) != uses // count_here:
                own_factor = uses // count_here / own
            part = math.inf if unique_in_batch else items_of_segment
            return uses_of_items(own, own_factor, own_seed, number, known, shards is not None, part)

        told = None if uses is None else math.ceil(uses // count_here / factor)
        return Stream(
            events(
                map(uses_of, passes, count(epoch)),
                epoch,
                items_of_segment,
                told,
                not unique_in_batch,
            ),
            max(1, capacity) // count_here,
            own_seed,
            None if steps is None else steps * batch_size // count_here,
        )

    streams = list(starmap(stream, enumerate(tee(passes, count_here))))
    turn = 0
    for iteration in count(epoch):
        for each in streams:
            each.begin_iteration(iteration)
        batches = []
        while True:
            batch: list[Use] = []
            for each in streams:
                each.begin_batch()
            while len(batch) < batch_size:
                drawn = streams[turn].draw(unique_in_batch)
                if drawn is None:
                    break
                batch.append(Use(drawn.item * count_here + turn, drawn.use))
                turn = (turn + 1) % count_here
            if not batch:
                break
            if len(batch) == batch_size or not drop_last:
                batches.append(batch)
        yield batches
        if all(each.finished() for each in streams):
            return
