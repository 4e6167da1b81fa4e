"""A model of an adaptive factor in plain Python, with its decisions and its real draws.

In place of time there are arrivals: so many items come before each batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, count

from reference_model import DRAW_STREAM, OVER, Use
from reference_random import Xoshiro256, stream_key


class Rounds:
    """Items that are drawn in rounds: each once before any is drawn again.

    Attributes
    ----------
    order
        The items in the pool: first those of this round, which are `active`, then those at rest.
    uses
        So far, of each item in the pool, the oldest first.
    admitted
        The batch before which an item came, of those that are not overdue.
    """

    def __init__(
        self, *, capacity: int, rows: int, most: int, least: int, age: int | None, unique: bool
    ) -> None:
        self.capacity, self.rows, self.unique = capacity, rows, unique
        self.most, self.least, self.age = most, least, age
        self.last = most  # uses, of which the last makes an item leave
        self.order: list[int] = []
        self.active = 0
        self.uses: dict[int, int] = {}
        self.admitted: dict[int, int] = {}
        self.due: list[int] = []  # drawn in this batch, and to be drawn again or to leave
        self.batch = 0

    @property
    def suffices(self) -> bool:
        """True if a whole batch can be drawn."""
        left = (
            len(self.uses) if self.unique else sum(self.most - each for each in self.uses.values())
        )
        return left >= self.rows

    @property
    def has_room(self) -> bool:
        return len(self.uses) < self.capacity or bool(self.may_leave)

    @property
    def may_leave(self) -> list[int]:
        """Items that have had their least uses: the most uses first, the oldest among equals."""
        ready = [item for item, uses in self.uses.items() if uses >= self.least]
        return sorted(ready, key=self.uses.__getitem__, reverse=True)

    def swap(self, place: int, other: int) -> None:
        self.order[place], self.order[other] = self.order[other], self.order[place]

    def leave(self, item: int) -> None:
        place = self.order.index(item)
        if place < self.active:
            self.active -= 1
            self.swap(place, self.active)
            place = self.active
        self.swap(place, -1)
        self.order.pop()
        del self.uses[item]
        self.admitted.pop(item, None)

    def begin_batch(self) -> None:
        self.batch += 1
        for item, batch in list(self.admitted.items()):
            if self.age is not None and self.batch - batch >= self.age:
                del self.admitted[item]
                if self.uses[item] >= self.least:
                    self.leave(item)
        for item in self.due:
            if item not in self.uses:
                continue
            if self.uses[item] < self.least:
                if (place := self.order.index(item)) >= self.active:
                    self.swap(place, self.active)
                    self.active += 1
            elif item not in self.admitted:
                self.leave(item)
        self.due = []

    def admit(self, item: int) -> None:
        if len(self.uses) == self.capacity:
            self.leave(self.may_leave[0])
        self.uses[item] = 0
        self.admitted[item] = self.batch
        self.order.append(item)
        self.swap(-1, self.active)
        self.active += 1

    def drain(self) -> None:
        """No item follows."""
        self.last = self.least
        for item in self.may_leave:
            self.leave(item)
        self.begin_round()

    def begin_round(self) -> None:
        self.active = len(self.order)

    def begin_draws(self) -> None:
        if self.active < self.rows:
            self.begin_round()

    def draw(self, rows: int, random: Xoshiro256) -> list[tuple[int, int]]:
        """Return items and the numbers of their uses, fewer if no more are left for this batch."""
        drawn: list[tuple[int, int]] = []
        while len(drawn) < rows:
            if self.active == 0:
                if self.unique or not self.order:
                    break
                self.begin_round()
            place = random.below(self.active)
            item = self.order[place]
            self.active -= 1
            self.swap(place, self.active)
            drawn.append((item, self.uses[item]))
            self.uses[item] += 1
            if self.uses[item] == self.last:
                self.leave(item)
            elif self.uses[item] < self.least or item not in self.admitted:
                self.due.append(item)
        return drawn


class Arrivals:
    """Items and ends of passes, and how many of them come before each batch.

    Attributes
    ----------
    numbers
        In their pass, of all items so far.
    ends
        Items up to the end of each pass, the last one's too.
    log
        What came before each batch.
    """

    def __init__(self, passes: Iterable[int], wanted: Iterable[int], pool: Rounds) -> None:
        self.events = chain.from_iterable(chain(range(items), [None]) for items in passes)
        self.coming = next(self.events, OVER)
        self.wanted, self.pool = iter(wanted), pool
        self.numbers: list[int] = []
        self.ends: list[int] = []
        self.log: list[int] = []

    @property
    def are_over(self) -> bool:
        return self.coming is OVER

    def come(self) -> None:
        """Let come what comes before a batch: more than wanted if that is too little for one."""
        wanted, taken = next(self.wanted), 0
        while not self.are_over and (taken < wanted or not self.pool.suffices):
            if self.coming is None:
                self.ends.append(len(self.numbers))
            elif self.pool.has_room:
                self.pool.admit(len(self.numbers))
                self.numbers.append(self.coming)
            else:
                break
            self.coming = next(self.events, OVER)
            taken += 1
            if self.are_over:
                self.pool.drain()
        self.log.append(taken)


def adaptive_iterations(
    arrivals: Arrivals,
    *,
    batch_size: int,
    drop_last: bool,
    seed: int,
    epoch: int,
    steps: int | None,
) -> Iterator[list[list[Use]]]:
    """Yield the batches of each iteration over passes that flow into each other.

    `steps`: batches of an iteration; None: it ends once its pass is over and all items so far may
    have had their least uses, between two batches.
    """
    pool, ends = arrivals.pool, arrivals.ends
    drawn, is_decided = 0, False
    for passed in count():
        random = Xoshiro256(stream_key(seed, epoch + passed, DRAW_STREAM))
        batches: list[list[Use]] = []
        begin = drawn
        while True:
            if not is_decided:
                pool.begin_batch()
                arrivals.come()
                pool.begin_draws()
                is_decided = True
            is_over = arrivals.are_over and not pool.uses
            if steps is not None:
                left = begin + steps * batch_size - drawn
            elif passed < len(ends) - arrivals.are_over:
                left = max(begin + 1, ends[passed] * pool.least) - drawn
            else:
                left = batch_size  # the last iteration ends with the pool
            if is_over or left <= 0:
                break
            rows = batch_size if steps is None else min(batch_size, left)
            drawn_now = pool.draw(rows, random)
            batch = [Use(arrivals.numbers[item], use) for item, use in drawn_now]
            drawn += len(batch)
            is_decided = False
            if len(batch) == batch_size or not drop_last:
                batches.append(batch)
        yield batches
        if is_over and (steps is not None or passed + 1 >= len(ends)):
            return
