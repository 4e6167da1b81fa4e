"""An adaptive factor that several ranks decide on together."""

import random
import time
from collections import Counter

import numpy as np
import pytest
from worlds import Unsized, loader_of, run_world

from pyecho import Adaptive, ConfigError


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
    results, _world = run_world(
        size,
        lambda member: epochs_of(
            member, lengths[member.rank], options, factor=factor, seed=case + member.rank
        ),
    )
    shapes = [[[len(batch) for batch, _ in epoch] for epoch in taken] for taken, _ in results]
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


@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize("case", range(30))
def test_states_go_on_with_the_same_decisions(case, payload):
    size, lengths, factor, options = drawn(case)
    lengths = [max(1, length) for length in lengths]
    draw = random.Random(case)

    def plain(emission):
        batch, info = emission
        return np.atleast_1d(batch).tolist(), info.use.tolist()

    def loader_for(member, factor):
        source = source_of(member.rank, lengths[member.rank], case + member.rank)
        return loader_of(member, source, factor, with_info=True, **options)

    def whole(member):
        with loader_for(member, factor) as loader:
            return [plain(each) for each in loader], loader.stats().log

    found, _ = run_world(size, whole)
    batches, log = [each[0] for each in found], found[0][1]
    stop = draw.randrange(len(batches[0]))

    def first_part(member, factor):
        with loader_for(member, factor) as loader:
            iterator = iter(loader)
            taken = [plain(next(iterator)) for _ in range(stop)]
            return taken, loader.state_dict(payload=payload)

    def second_part(member, factor, state):
        with loader_for(member, factor) as loader:
            loader.load_state_dict(state)
            return [plain(each) for each in loader], loader.stats()

    begun, _ = run_world(size, lambda member: first_part(member, factor.replay(log)))
    rest, _ = run_world(
        size, lambda member: second_part(member, factor.replay(log), begun[member.rank][1])
    )
    for rank in range(size):
        assert begun[rank][0] + rest[rank][0] == batches[rank]

    begun, _ = run_world(size, lambda member: first_part(member, factor))
    rest, _ = run_world(size, lambda member: second_part(member, factor, begun[member.rank][1]))
    shapes = [[len(batch) for batch, _ in begun[rank][0] + rest[rank][0]] for rank in range(size)]
    assert all(each == shapes[0] for each in shapes)
    assert all(
        log_of(each[1], [len(shapes[0])]) == log_of(rest[0][1], [len(shapes[0])]) for each in rest
    )
    if "steps_per_epoch" not in options:
        for rank in range(size):
            uses = Counter(
                item
                for batch, uses in begun[rank][0] + rest[rank][0]
                for item, use in zip(batch, uses, strict=True)
                if use >= 0
            )
            assert len(uses) == lengths[rank]
            assert all(factor.min <= count <= factor.max for count in uses.values())


def test_batch_echoing():
    def rank_does(member):
        source = source_of(member.rank, 40 + 20 * member.rank, member.rank)
        loader = loader_of(member, source, Adaptive(4), with_info=True, shuffle_buffer=12)
        with loader:
            return [(int(item), int(info.use[0])) for item, info in loader], loader.stats()

    found, world = run_world(2, rank_does)
    assert len(found[0][0]) == len(found[1][0]) >= 60
    assert found[0][1].log[0].tolist() == found[1][1].log[0].tolist()
    assert {item for item, use in found[0][0] if use >= 0} == {1000 + each for each in range(40)}
    assert found[0][1].additional == sum(use < 0 for _, use in found[0][0]) > 0
    assert world.calls <= 4 + len(found[0][0]) // 8 + 4


def test_a_source_that_fails_is_told_of_at_the_end_of_the_epoch():
    def failing():
        yield from range(1000, 1030)
        raise OSError("gone")

    class Failing(Unsized):
        def __len__(self):
            return 100

        def __iter__(self):
            return failing() if self.items == 0 else super().__iter__()

    def rank_does(member):
        source = Failing(0) if member.rank == 0 else Failing(range(2000, 2100))
        taken = []
        with loader_of(member, source, Adaptive(4), batch_size=8, shuffle_buffer=16) as loader:
            try:
                for batch in loader:
                    taken.append(len(batch))
            except OSError as error:
                return taken, str(error)
            return taken, None

    found, _ = run_world(2, rank_does)
    assert found[0][1] == "gone"
    assert found[1][1] is None
    assert found[0][0] == found[1][0]


@pytest.mark.parametrize(
    ("options", "of_ranks", "message"),
    [
        ({"shards": 4}, None, "one shard a rank"),
        ({"epochs": 2}, None, "steps_per_epoch= instead of epochs="),
        ({}, lambda rank: Unsized(range(rank, 50)), "tell their length"),
        ({"steps_per_epoch": 5}, lambda rank: iter(range(rank, 50)), "can be read again"),
        ({"steps_per_epoch": 5}, lambda rank: list(range(50 * rank)), "items on each"),
    ],
)
def test_what_is_refused(options, of_ranks, message):
    def rank_does(member):
        source = list(range(member.rank, 50)) if of_ranks is None else of_ranks(member.rank)
        with (
            pytest.raises(ConfigError, match=message),
            loader_of(member, source, Adaptive(4), batch_size=8, **options) as loader,
        ):
            next(iter(loader))

    run_world(2, rank_does)


def test_logs_to_replay_are_the_same_on_all_ranks():
    def rank_does(member):
        factor = Adaptive(4, replay={0: [80, member.rank]})
        with (
            pytest.raises(ConfigError, match="have other options"),
            loader_of(member, list(range(member.rank, 100)), factor, batch_size=8) as loader,
        ):
            next(iter(loader))

    run_world(2, rank_does)


def test_sources_that_yield_more_or_less_than_they_tell():
    class Lying(Unsized):
        def __len__(self):
            return 50

    def rank_does(member):
        source = Lying(range(1000 * member.rank, 1000 * member.rank + [900, 20][member.rank]))
        with loader_of(member, source, Adaptive(4), batch_size=8, shuffle_buffer=16) as loader:
            return [[len(batch) for batch in loader] for _ in range(3)], loader.stats().additional

    found, _ = run_world(2, rank_does)
    assert found[0][0] == found[1][0]
    assert found[0][1] == 0 < found[1][1]
