"""Several ranks: equally many batches, every item used, one message an epoch."""

import os
from collections import Counter
from itertools import chain
from typing import NamedTuple

import numpy as np
import pytest
import reference_model as model
from hypothesis import given, settings
from hypothesis import strategies as st
from native import Numbers
from worlds import Told, Unsized, loader_of, numbers_of, run_world

from pyecho import Adaptive

pytestmark = pytest.mark.filterwarnings("ignore:the .* items of the source, used")

STRESS = os.environ.get("PYECHO_STRESS", "") not in ("", "0")
SOURCES = {"array": np.array, "list": list, "told": Told, "unsized": Unsized}


class Setting(NamedTuple):
    """A world: items on each rank, their kind, and the options of all loaders."""

    lengths: list[int]
    kind: str
    options: dict

    @property
    def streams(self):
        """Streams of a rank."""
        return (self.options.get("shards") or len(self.lengths)) // len(self.lengths)

    @property
    def uses(self):
        """Uses of a pass of each rank."""
        return model.uses_of_longest(
            max(self.lengths),
            self.options["factor"],
            streams=self.streams,
            batch_size=self.options["batch_size"] or 1,
            pad_last="pad_last" in self.options,
        )

    def loader(self, member, **more):
        """Return the loader of a rank."""
        source = SOURCES[self.kind](numbers_of(member.rank, self.lengths[member.rank]))
        return loader_of(member, source, with_info=True, **self.options | more)


@st.composite
def worlds(draw):
    """Worlds with a length of every source, or with steps_per_epoch."""
    ranks = draw(st.integers(2, 6))
    streams = draw(st.sampled_from([None, None, 1, 2, 3]))
    least = streams or 1
    lengths = draw(st.lists(st.integers(least, 70), min_size=ranks, max_size=ranks))
    batch_size = draw(st.one_of(st.none(), st.integers(1, 12)))
    options = {
        "factor": draw(st.sampled_from([1, 2, 3.5, 1.25])),
        "batch_size": batch_size,
        "shuffle_buffer": draw(st.integers(least, 60)),
        "seed": draw(st.integers(0, 99)),
        "threads": draw(st.sampled_from([None, 0, 2])),
        "shards": streams and streams * ranks,
    }
    ending = draw(st.sampled_from(["", "", "pad_last", "drop_last", "epochs", "steps_per_epoch"]))
    kinds = ["array", "list", "told"]
    if ending.endswith("last") and batch_size is not None:
        options[ending] = True
    elif ending in ("epochs", "steps_per_epoch"):
        options[ending] = draw(st.integers(1, 3)) * (least if ending == "steps_per_epoch" else 1)
        lengths = [length // least * least for length in lengths]  # as many in each stream
    if ending == "steps_per_epoch" and least == 1:
        kinds.append("unsized")
    return Setting(lengths, draw(st.sampled_from(kinds)), options)


def expected(setting, rank, epochs):
    """Return the batches of each epoch of a rank that the model says."""
    options = {name: setting.options.get(name) for name in ("factor", "seed", "shards")}
    options |= {"capacity": setting.options["shuffle_buffer"], "uses": setting.uses}
    options |= {"batch_size": setting.options["batch_size"] or 1, "rank": rank}
    options |= {"ranks": len(setting.lengths), "drop_last": "drop_last" in setting.options}
    made = []
    while len(made) < epochs:
        passes = [setting.lengths[rank]] * max(1, setting.options.get("epochs", 1) - len(made))
        made += model.iterations(passes, epoch=len(made), **options)
    return made[:epochs]


@settings(max_examples=3000 if STRESS else 100)
@given(setting=worlds())
def test_ranks_have_equally_many_batches_and_use_all_their_items(setting):
    epochs, options = 3, setting.options
    steps, rows = options.get("steps_per_epoch"), options["batch_size"] or 1
    whole = setting.uses // rows if "drop_last" in options else -(-setting.uses // rows)
    batches = steps or whole

    def rank_does(member):
        with setting.loader(member) as loader:
            assert len(loader) == batches
            made = []
            for _ in range(epochs):
                made.append([])
                for batch, info in loader:
                    items, uses = info.source_index.tolist(), info.use.tolist()
                    values = np.atleast_1d(np.array(batch)).tolist()
                    assert values == [1000 * member.rank + item for item in items]
                    made[-1].append(list(map(model.Use, items, uses)))
            return made

    results, world = run_world(len(setting.lengths), rank_does)
    for rank, (length, made) in enumerate(zip(setting.lengths, results, strict=True)):
        assert [len(epoch) for epoch in made] == [batches] * epochs
        if steps is None:
            assert made == expected(setting, rank, epochs)
        if not options.keys() & {"steps_per_epoch", "drop_last", "epochs"}:
            counts = Counter(use.item for use in chain(*made[0]))
            assert counts.total() == setting.uses
            assert set(counts) == set(range(length))
            if setting.streams == 1:
                each = setting.uses // length
                assert set(counts.values()) <= {each, each + 1}
    begun = 1 if steps else -(-epochs // options.get("epochs", 1))
    assert 1 + begun <= len(world.messages[0]) <= 1 + epochs
    assert len({len(message) for sent in world.messages for message in sent}) == 1


class Buckets:
    """Tells and has another number of items in each epoch, like a sampler that makes buckets."""

    LENGTHS = (40, 10, 20, 70, 12)

    def __init__(self, rank=0):
        self.rank, self.epoch = rank, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.LENGTHS[self.epoch] + 5 * self.rank

    def __iter__(self):
        return iter(numbers_of(self.rank, len(self)))


def test_length_is_asked_once_the_source_knows_its_epoch():
    def rank_does(member):
        with loader_of(member, Buckets(member.rank), 2, batch_size=4) as loader:
            return [([batch.tolist() for batch in loader], len(loader)) for _ in Buckets.LENGTHS]

    results, _ = run_world(2, rank_does)
    for rank, epochs in enumerate(results):
        for (batches, told), length in zip(epochs, Buckets.LENGTHS, strict=True):
            uses = 2 * (length + 5)
            assert told == len(batches) == -(-uses // 4)
            counts = Counter(chain(*batches))
            assert set(counts) == set(numbers_of(rank, length + 5 * rank))
            each = uses // len(counts)
            assert set(counts.values()) <= {each, each + 1}
            assert counts.total() == uses


@pytest.mark.parametrize("options", [{}, {"prefetch": 1, "shuffle_buffer": 8}, {"threads": 2}])
def test_state_of_a_source_whose_length_changes_goes_on(options):
    def rank_does(member):
        def make():
            return loader_of(member, Buckets(member.rank), 2, batch_size=4, **options)

        with make() as loader:
            whole = [[batch.tolist() for batch in loader] for _ in Buckets.LENGTHS]
        for epoch, batches in enumerate(whole):
            with make() as loader, make() as other:
                loader.set_epoch(epoch)
                running = iter(loader)
                assert [next(running).tolist() for _ in range(4)] == batches[:4]
                other.load_state_dict(loader.state_dict())
                rest = [[batch.tolist() for batch in other] for _ in whole[epoch:]]
            assert rest == [batches[4:], *whole[epoch + 1 :]]

    run_world(2, rank_does)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_adaptive_factor_adapts_to_the_source_of_each_rank(batch_size):
    factor = Adaptive(6)

    def rank_does(member, factor=factor):
        source = Unsized(numbers_of(member.rank, (90, 30)[member.rank]))
        options = {"batch_size": batch_size, "shuffle_buffer": 8, "steps_per_epoch": 20}
        with loader_of(member, source, factor, with_info=True, **options) as loader:
            made = [[uses_in(each) for each in loader] for _ in range(3)]
            return made, loader.stats().log

    results, world = run_world(2, rank_does)
    for rank, (made, log) in enumerate(results):
        assert [len(epoch) for epoch in made] == [20] * 3
        assert {value // 1000 for value, _ in chain(*chain(*made))} == {rank}
        assert max(use for _, use in chain(*chain(*made))) < factor.max
        again = run_world(
            2,
            lambda member, log=log, rank=rank: rank_does(
                member, factor.replay(log if member.rank == rank else results[1 - rank][1])
            ),
        )
        assert again[0][rank][0] == made
    assert len({len(sent) for sent in world.messages}) == 1


def uses_in(emission):
    """Return the value and the number of each use of a batch."""
    batch, info = emission
    return list(zip(np.atleast_1d(np.array(batch)).tolist(), info.use.tolist(), strict=True))


def test_native_source_is_a_source_like_any_other():
    def rank_does(member):
        source = Numbers((40, 25)[member.rank], threads=1 + member.rank)
        with loader_of(member, source, 2, batch_size=4, shuffle_buffer=8) as loader:
            return [Counter(chain(*(batch["x"].tolist() for batch in loader))) for _ in range(3)]

    results, _ = run_world(2, rank_does)
    for counts in chain(*results):
        assert counts.total() == 80
    assert [set(counts.values()) for counts in results[0]] == [{2}] * 3
    assert [set(counts.values()) for counts in results[1]] == [{3, 4}] * 3


def test_augment_draws_apart_on_each_rank():
    def rank_does(member):
        def draw(batch, rng):
            return rng.bit_generator.random_raw()

        with loader_of(member, numbers_of(member.rank, 4), 2, augment=draw) as loader:
            return list(loader)

    first, second = run_world(2, rank_does)[0]
    assert len({*first, *second}) == 16


def test_groups_need_a_rank_a_size_and_gather():
    class Alone:
        rank, size = 0, 1

        def gather(self, values):
            return np.array([values])

    with loader_of(Alone(), [1, 2], 2) as loader:
        assert sorted(loader) == [1, 1, 2, 2]
