"""Several ranks: equally many batches, and the same global ones for any number of ranks."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from worlds import Member, Unsized, World, global_batches, loader_of, run_world

from pyecho import ConfigError, EchoError, EchoLoader
from pyecho.run.ranks import Alone

BATCH, SHARDS, POOL = 24, 12, 240


def epochs_of(world_size, items, factor, *, known=True, epochs=2, **options):
    """Return the global batches of a world, uses of each item in the first epoch, and stats."""

    def rank_does(member):
        part = items[member.rank :: member.size]
        source = np.array(part, np.int64) if known else Unsized([np.int64(each) for each in part])
        loader = loader_of(
            member,
            source,
            factor,
            batch_size=BATCH // member.size,
            shuffle_buffer=POOL // member.size,
            shards=SHARDS,
            with_info=True,
            **options,
        )
        taken, uses = [], Counter()
        with loader:
            for epoch in range(epochs):
                for batch, info in loader:
                    taken.append(np.array(batch))
                    if epoch == 0:
                        uses.update(batch[info.use >= 0].tolist())
                taken.append(None)
            return taken, uses, loader.stats()

    results, world = run_world(world_size, rank_does)
    uses = sum((each[1] for each in results), Counter())
    return global_batches([each[0] for each in results]), uses, [each[2] for each in results], world


@pytest.mark.filterwarnings("ignore:the source.*yielded nothing")
@pytest.mark.parametrize("unique_in_batch", [False, True])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("count", [0, 1, 3, 12, 50, 97, 300])
@pytest.mark.parametrize("factor", [1, 2, 1.5])
def test_global_batches_are_those_of_one_rank(factor, count, known, unique_in_batch):
    items = list(range(count))
    options = {"known": known, "unique_in_batch": unique_in_batch}
    alone, uses, _, _ = epochs_of(1, items, factor, **options)
    for size in (2, 3, 4, 6):
        batches, same_uses, stats, _ = epochs_of(size, items, factor, **options)
        assert batches == alone
        assert same_uses == uses
        emitted = sum(len(batch) for batch in batches if batch is not None)
        assert sum(each.emitted for each in stats) == emitted
        assert sum(each.additional for each in stats) == emitted - 2 * sum(uses.values())
    assert set(uses) == set(items)
    assert all(each in (int(factor), int(factor + 0.5)) for each in uses.values())
    if unique_in_batch and count >= SHARDS * BATCH // SHARDS:
        assert all(len(set(batch)) == len(batch) for batch in alone if batch is not None)


def uneven(case):
    """Return a function of the lengths of all ranks' sources, and the loader's options."""
    draw = random.Random(case)
    size = draw.choice([2, 3, 4])
    lengths = [draw.choice([0, 1, 5, draw.randrange(400)]) for _ in range(size)]
    options = {
        "factor": draw.choice([1, 2, 3.5, 1.25]),
        "batch_size": draw.choice([None, 1, 8, 32]),
        "shuffle_buffer": draw.choice([None, 1, 40, 64]),
        "seed": draw.randrange(100),
    }
    if options["batch_size"] is not None:
        options["drop_last"] = draw.random() < 0.3
        roomy = (options["shuffle_buffer"] or 320) >= options["batch_size"]
        options["unique_in_batch"] = roomy and draw.random() < 0.3
    kind = draw.choice(["array", "list", "unsized", "iterator", "threads"])
    if draw.random() < 0.2:
        options["steps_per_epoch"] = draw.randrange(1, 30)
    elif draw.random() < 0.2 and kind in ("array", "list") and not options.get("unique_in_batch"):
        options["epochs"] = 2
    if kind == "threads":
        options["threads"] = 2
    return lengths, kind, options


def check_uneven(case):
    lengths, kind, options = uneven(case)
    make = {"array": np.array, "iterator": iter, "unsized": Unsized}.get(kind, list)

    def rank_does(member):
        items = [np.int64(1000 * member.rank + each) for each in range(lengths[member.rank])]
        with loader_of(member, make(items), **options) as loader:
            counts, uses = [], Counter()
            for _ in range(2):
                batches = [np.atleast_1d(np.array(batch)) for batch in loader]
                counts.append([len(batch) for batch in batches])
                for batch in batches if not uses else []:
                    uses.update(batch.tolist())
            return counts, uses

    results, _ = run_world(len(lengths), rank_does)
    assert len({str(counts) for counts, _ in results}) == 1, (lengths, kind, options, results)
    if not options.get("drop_last") and "steps_per_epoch" not in options:
        least = int(options["factor"])
        for rank, (_, uses) in enumerate(results):
            for each in range(lengths[rank]):
                assert uses[1000 * rank + each] >= least or "epochs" in options


@pytest.mark.filterwarnings("ignore:the source|the .* items of the source")
@pytest.mark.parametrize("case", range(60))
def test_uneven_and_empty_ranks_have_equally_many_batches(case):
    check_uneven(case)


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore:the source|the .* items of the source")
def test_a_thousand_uneven_worlds():
    for case in range(1000):
        check_uneven(1000 + case)


def test_nothing_is_gathered_for_each_batch():
    def rank_does(member):
        source = list(map(np.int64, range(4000)))[member.rank :: member.size]
        for known in (True, False):
            with loader_of(member, source if known else Unsized(source), 2, batch_size=8) as loader:
                assert sum(1 for _ in loader) == 500
        return

    _, world = run_world(2, rank_does)
    # Lengths twice, and the beginnings; behind batches 1, 2, 4, 8 and every 16th up to the end.
    assert world.calls <= 4 + 4 + 500 // 16 + 1
    assert world.numbers * 8 < 1024


@pytest.mark.parametrize("known", [True, False])
def test_len_is_that_of_the_longest_rank(known):
    def rank_does(member):
        items = list(map(np.int64, range((50, 20)[member.rank])))
        with loader_of(member, items if known else Unsized(items), 1.5, batch_size=8) as loader:
            if not known:
                with pytest.raises(TypeError, match="does not tell"):
                    len(loader)
                return None
            return len(loader), sum(1 for _ in loader)

    results, _ = run_world(2, rank_does)
    assert results == [(10, 10)] * 2 if known else results == [None] * 2


def test_shards_need_no_group():
    loader = EchoLoader(list(map(np.int64, range(25))), 2, batch_size=6, shards=4, with_info=True)
    batches = [(batch.tolist(), info.use.tolist()) for batch, info in loader]
    uses = Counter(x for batch, use in batches for x, u in zip(batch, use, strict=True) if u >= 0)
    assert uses == dict.fromkeys(range(25), 2)
    assert sum(len(batch) for batch, _ in batches) == 4 * 7 * 2
    streams = [x % 4 for batch, _ in batches for x in batch]
    assert streams == [0, 1, 2, 3] * 14


def test_what_cannot_be():
    with pytest.raises(ConfigError, match="multiple of the number of ranks, 2, got 3"):
        run_and_raise(lambda member: loader_of(member, [1], 2, shards=3))
    with pytest.raises(ConfigError, match="other options"):
        run_and_raise(lambda member: list(loader_of(member, [member.rank], 2, seed=member.rank)))
    with pytest.raises(ConfigError, match="tell their length"):
        run_and_raise(lambda member: list(loader_of(member, Unsized([member.rank]), 2, epochs=2)))
    with pytest.raises(ConfigError, match="shuffle_buffer to 4 or more"):
        EchoLoader([1], 2, shuffle_buffer=3, shards=4)
    with pytest.raises(ConfigError, match="must be a multiple of shards"):
        EchoLoader([1], 2, batch_size=3, shards=4, steps_per_epoch=3)
    with pytest.raises(ConfigError, match="multiple of 2"):
        next(iter(EchoLoader([1, 2, 3], 2, shuffle_buffer=9, shards=2, epochs=2)))


@pytest.mark.parametrize("found", [None, [[1]], [[1], [1], [1]], [[1], []], [[1], ["1"]]])
def test_groups_that_do_not_gather_are_told_of(found):
    class Mute(Member):
        def gather(self, values):
            return found

    with pytest.raises(ConfigError, match=r"gather\(\) of the group \(Mute\) must return 2 lists"):
        loader_of(Mute(World(2), 0), [1], 2)


def test_arrays_may_be_gathered():
    class Vector(Alone):
        def gather(self, values):
            return np.array([values])

    with loader_of(Vector(), [1, 2], 2) as loader:
        assert sorted(loader) == [1, 1, 2, 2]


def run_and_raise(rank_does):
    try:
        run_world(2, rank_does)
    except AssertionError as error:
        raise error.__cause__ from None


def test_a_source_that_fails_at_once_is_told_of_on_all_ranks():
    def failing():
        raise OSError("the disk is gone")
        yield

    def rank_does(member):
        source = failing() if member.rank else [np.int64(1)]
        with pytest.raises(OSError if member.rank else EchoError) as raised:
            list(loader_of(member, source, 2, batch_size=1))
        return str(raised.value)

    results, _ = run_world(2, rank_does)
    assert results == ["the source of rank 1 failed; see the error there", "the disk is gone"]


@pytest.mark.filterwarnings("ignore:the source")
@pytest.mark.parametrize("told", [0, 2, 5, 12])
@pytest.mark.parametrize("there", [0, 3, 12, 40])
@pytest.mark.parametrize("options", [{}, {"shards": 4, "shuffle_buffer": 8}, {"factor": 1}])
def test_sources_whose_length_is_wrong_do_no_harm(told, there, options):
    class Source:
        def __iter__(self):
            return iter([np.int64(each) for each in range(there)])

        def __len__(self):
            return told

    with EchoLoader(Source(), **({"factor": 2, "batch_size": 2, "shards": 1} | options)) as loader:
        for _ in range(2):
            assert sum(1 for _ in itertools.islice(loader, 200)) < 200


def test_ranks_that_begin_other_epochs_are_told():
    def rank_does(member):
        loader = loader_of(member, [np.int64(member.rank)], 2, batch_size=1)
        if member.rank == 0:
            loader.set_epoch(4)
        list(loader)

    with pytest.raises(ConfigError, match=r"begin the epochs \[4, 0\]"):
        run_and_raise(rank_does)


def test_what_knows_one_rank_only_is_refused():
    def rank_does(member):
        loader = loader_of(member, [np.int64(member.rank)], 2, batch_size=1)
        with pytest.raises(EchoError, match="skip_first_batches"):
            loader.skip_first_batches(1)
        with pytest.raises(ConfigError, match="inner loader has a group"):
            EchoLoader(loader, 2)

    run_world(2, rank_does)
