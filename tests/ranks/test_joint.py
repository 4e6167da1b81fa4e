"""An adaptive factor that several ranks decide on together."""

import random
import time
from collections import Counter

import numpy as np
import pytest
from worlds import Unsized, loader_of, run_world

from pyecho import Adaptive, ConfigError, EchoLoader


class Paced:
    """A source of a known length that sleeps now and then."""

    def __init__(self, items, seed):
        self.items, self.draw = items, random.Random(seed)

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        for item in self.items:
            if self.draw.random() < 0.2:
                time.sleep(self.draw.choice([0.0005, 0.002]))
            yield item


def source_of(rank, length, seed):
    return Paced([np.int64(1000 * (rank + 1) + each) for each in range(length)], seed)


def epochs_of(member, length, options, *, factor, epochs=2, seed=0):
    """Run epochs on a rank; return batches, uses, and stats."""
    loader = loader_of(
        member, source_of(member.rank, length, seed), factor, with_info=True, **options
    )
    with loader:
        taken = [
            [(np.atleast_1d(batch).tolist(), info.use.tolist()) for batch, info in loader]
            for _ in range(epochs)
        ]
        return taken, loader.stats()


def log_of(stats, batches):
    """Return the decisions for so many batches; there may be some that are made ahead."""
    log = {epoch: decisions.tolist() for epoch, decisions in stats.log.items()}
    return {epoch: decisions[: sum(batches[epoch:])] for epoch, decisions in log.items()}


def drawn(case):
    draw = random.Random(case)
    size = draw.choice([1, 2, 3, 4])
    options = {
        "batch_size": draw.choice([1, 4, 8]),
        "shuffle_buffer": draw.choice([8, 9, 24, 60]),
        "unique_in_batch": draw.random() < 0.5,
        "prefetch": draw.choice([1, 2, 20]),
        "threads": draw.choice([0, 1, 2]),
        "seed": draw.randrange(100),
        "shards": size,
    }
    if draw.random() < 0.3:
        options["steps_per_epoch"] = draw.choice([1, 5, 30])
        lengths = [draw.choice([1, 9, 40, 150]) for _ in range(size)]
    else:
        lengths = [draw.choice([0, 1, 5, 60, 150]) for _ in range(size)]
    lengths[draw.randrange(size)] = 150
    low = draw.choice([1, 1, 2])
    factor = Adaptive(draw.choice([low, 3, 6]), low, max_age=draw.choice([None, 5, 30]))
    return size, lengths, factor, options


@pytest.mark.parametrize("case", range(60))
def test_ranks_have_equally_many_batches_and_one_log(case):
    size, lengths, factor, options = drawn(case)
    results, world = run_world(
        size,
        lambda member: epochs_of(
            member, lengths[member.rank], options, factor=factor, seed=case + member.rank
        ),
    )
    shapes = [
        [[len(batch) for batch, _ in epoch] for epoch in taken] for taken, _ in results
    ]
    assert all(each == shapes[0] for each in shapes)
    batches = list(map(len, shapes[0]))
    assert min(batches) > 0
    logs = [log_of(stats, batches) for _, stats in results]
    assert all(each == logs[0] for each in logs)
    for rank, (taken, stats) in enumerate(results):
        own, additional = Counter(), 0
        for epoch in taken:
            for batch, uses in epoch:
                assert all(each // 1000 == rank + 1 for each in batch) or lengths[rank] == 0
                own.update(each for each, use in zip(batch, uses, strict=True) if use >= 0)
                additional += sum(use < 0 for use in uses)
        assert additional == stats.additional
        if "steps_per_epoch" not in options:
            assert len(own) == lengths[rank]
            assert all(2 * factor.min <= uses <= 2 * factor.max for uses in own.values())
    again, _ = run_world(
        size,
        lambda member: epochs_of(
            member, lengths[member.rank], options, factor=factor.replay(results[0][1].log)
        ),
    )
    assert [taken for taken, _ in again] == [taken for taken, _ in results]
