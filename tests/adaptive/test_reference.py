"""The pool of an adaptive factor against a model of its rules that a reader can check by eye."""

import random
import time

import numpy as np
import pytest

import pyecho


class Pool:
    """The pool, one batch after the other. Draws are random, and checked here."""

    def __init__(self, factor, capacity, rows, unique, items):
        self.factor, self.capacity, self.rows, self.unique = factor, capacity, rows, unique
        self.arriving = [*range(items), None]  # None: the end of the pass
        self.uses = {}  # of the items in the pool, the oldest first
        self.admitted_in = {}  # the batch before which an item was admitted
        self.round = set()  # items that can be drawn before any is drawn again
        self.most = factor.max
        self.batch = 0
        self.just_drawn = set()

    def may_leave(self):
        return [item for item, uses in self.uses.items() if uses >= self.factor.min]

    def leave(self, item):
        del self.uses[item]
        self.round.discard(item)

    def begin_batch(self, events):
        self.batch += 1
        for item in self.may_leave():
            age = self.batch - self.admitted_in[item]
            if self.factor.max_age is not None and age >= self.factor.max_age:
                self.leave(item)
        due = {item for item, uses in self.uses.items() if uses < self.factor.min}
        self.round |= due & self.just_drawn
        for _ in range(events):
            self.take(self.arriving.pop(0))
        if len(self.round) < self.rows:
            self.round = set(self.uses)

    def take(self, item):
        if item is None:
            self.most = self.factor.min
            for other in self.may_leave():
                self.leave(other)
            self.round = set(self.uses)
            return
        if len(self.uses) == self.capacity:  # the most uses leave first, the oldest among equals
            self.leave(max(self.may_leave(), key=self.uses.get))
        self.uses[item] = 0
        self.admitted_in[item] = self.batch
        self.round.add(item)

    def check_draws(self, draws):
        self.just_drawn = set()
        for item, use in draws:
            if not self.round:
                assert not self.unique
                self.round = set(self.uses)
            assert item in self.round
            assert use == self.uses[item]
            self.round.remove(item)
            self.uses[item] += 1
            self.just_drawn.add(item)
            if self.uses[item] == self.most:
                self.leave(item)
        if len(draws) < self.rows:  # a short batch is one for which no more could be drawn
            assert self.most == self.factor.min
            assert not self.round
            assert self.unique or not self.uses


class Unsteady:
    """Numbers, some of which come late."""

    def __init__(self, items, seed):
        self.items, self.random = items, random.Random(seed)

    def __iter__(self):
        for number in range(self.items):
            if self.random.random() < 0.1:
                time.sleep(self.random.random() * 1e-3)
            yield np.int64(number)


@pytest.mark.parametrize("seed", range(60))
def test_adaptive_does_what_the_model_allows(seed):
    draw = random.Random(seed)
    least = draw.randint(1, 3)
    factor = pyecho.Adaptive(draw.randint(least, 8), least, max_age=draw.choice([None, None, 3, 9]))
    rows, items = draw.choice([1, 2, 4, 8]), draw.choice([1, 5, 60, 200])
    capacity = max(rows, draw.choice([1, 4, 8, 30]))
    unique = draw.random() < 0.3
    loader = pyecho.EchoLoader(
        Unsteady(items, seed),
        factor,
        batch_size=rows,
        shuffle_buffer=capacity,
        unique_in_batch=unique,
        threads=draw.choice([0, 1, 3]),
        seed=seed,
        with_info=True,
    )
    batches = []
    for _, info in loader:
        batches.append(list(zip(info.source_index.tolist(), info.use.tolist(), strict=True)))
        if draw.random() < 0.2:
            time.sleep(draw.random() * 1e-3)
    decisions = loader.stats().log[0].tolist()
    pool = Pool(factor, capacity, rows, unique, items)
    for draws, events in zip(batches, decisions, strict=False):
        pool.begin_batch(events)
        pool.check_draws(draws)
    for events in decisions[len(batches) :]:
        pool.begin_batch(events)
    assert not pool.uses
    assert pool.arriving == []
