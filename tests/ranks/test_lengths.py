"""Sources of ranks whose length changes, is not what they tell, or is 0."""

import math
import threading

import numpy as np
import pytest
from native import Numbers
from worlds import Unsized, loader_of, run_world

from pyecho import Adaptive, ConfigError, EchoLoader
from pyecho.run.ranks import Alone

LENGTHS = [40, 10, 20, 70, 12]


class Changing:
    """Tells and has another number of items in each epoch, like a sampler that makes buckets."""

    def __init__(self, rank=0):
        self.rank, self.epoch = rank, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return LENGTHS[self.epoch] + 5 * self.rank

    def __iter__(self):
        return iter([np.int64(100 * self.rank + item) for item in range(len(self))])


class Lying:
    """Has other numbers of items than it tells; of each pass the next one."""

    def __init__(self, told, *there, first=0):
        self.told, self.there, self.first, self.passes = told, there, first, 0

    def __len__(self):
        return self.told

    def __iter__(self):
        items = self.there[min(self.passes, len(self.there) - 1)]
        self.passes += 1
        return iter([np.int64(self.first + item) for item in range(items)])


def test_a_length_is_asked_once_the_source_knows_its_epoch():
    def rank_does(member):
        with loader_of(member, Changing(member.rank), 2, batch_size=4, with_info=True) as loader:
            epochs = []
            for _ in LENGTHS:
                batches = [(batch.tolist(), info.use.tolist()) for batch, info in loader]
                own = [
                    n for batch, use in batches for n, u in zip(batch, use, strict=True) if u >= 0
                ]
                epochs.append((len(batches), sorted(own), len(loader)))
            return epochs

    results, _ = run_world(2, rank_does)
    for rank, epochs in enumerate(results):
        items = [[100 * rank + item for item in range(length + 5 * rank)] for length in LENGTHS]
        assert [own for _, own, _ in epochs] == [sorted(each * 2) for each in items]
        expected = [math.ceil((length + 5) * 2 / 4) for length in LENGTHS]
        assert [count for count, _, _ in epochs] == expected
        assert [length for *_, length in epochs] == expected


@pytest.mark.parametrize("group", [None, Alone()])
@pytest.mark.parametrize("options", [{}, {"prefetch": 1, "shuffle_buffer": 8}, {"threads": 2}])
def test_states_of_a_changing_source_go_on(group, options):
    def make():
        return loader_of(group, Changing(), 2, batch_size=4, **options)

    with make() as loader:
        whole = [[batch.tolist() for batch in loader] for _ in LENGTHS]
    assert [sum(map(len, batches)) for batches in whole] == [2 * each for each in LENGTHS]
    for epoch, batches in enumerate(whole):
        with make() as loader, make() as other:
            loader.set_epoch(epoch)
            iterator = iter(loader)
            for _ in range(4):
                next(iterator)
            other.load_state_dict(loader.state_dict())
            assert [batch.tolist() for batch in other] == batches[4:]
            for later in whole[epoch + 1 :]:
                assert [batch.tolist() for batch in other] == later


def test_a_source_that_grows_is_read_by_the_thread_that_began():
    threads = []

    class Growing(Changing):
        def __iter__(self):
            for item in super().__iter__():
                threads.append(threading.get_ident())
                yield item

    with EchoLoader(Growing(), 2, batch_size=4) as loader:
        loader.set_epoch(1)
        for length in LENGTHS[1:]:
            assert sum(map(len, loader)) == 2 * length
    assert len(set(threads)) == 1


@pytest.mark.filterwarnings("ignore:the source .Lying. has more")
@pytest.mark.parametrize("options", [{}, {"batch_size": None}, {"shards": 4}, {"threads": 2}])
@pytest.mark.parametrize("told", [[40, 40], [20, 60]])
def test_what_a_source_has_beyond_its_length_is_dropped(told, options):
    options = {"factor": 2, "batch_size": 4, "shuffle_buffer": 8} | options

    def rank_does(member):
        first = 1000 * member.rank
        source = Lying(told[member.rank], 200, 150, first=first)
        with loader_of(member, source, **options) as loader:
            counts = [sum(1 for _ in loader) for _ in range(3)]
            iterator = iter(loader)
            for _ in range(3):
                next(iterator)
            state = loader.state_dict()
        with loader_of(member, Lying(told[member.rank], 150, first=first), **options) as loader:
            loader.load_state_dict(state)
            return [*counts, 3 + sum(1 for _ in loader), sum(1 for _ in loader)]

    results, _ = run_world(2, rank_does)
    batches = math.ceil(max(told) * 2 / (options["batch_size"] or 1))
    assert results == [[batches] * 5] * 2


class LyingStateful(Lying):
    """Goes on by a state of its own."""

    place = 0

    def __iter__(self):
        while self.place < self.there[0]:
            self.place += 1
            yield np.int64(self.first + self.place)
        self.place = 0

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


@pytest.mark.filterwarnings("ignore:the source .LyingStateful. has more")
def test_a_pass_that_goes_on_by_a_state_is_bounded():
    options = {"batch_size": 4, "shuffle_buffer": 4, "prefetch": 1, "threads": 0}

    def rank_does(member):
        def make():
            source = LyingStateful(20, 24, first=100 * member.rank)
            return loader_of(member, source, 2, **options)

        with make() as loader, make() as other:
            iterator = iter(loader)
            for _ in range(3):
                next(iterator)
            other.load_state_dict(loader.state_dict(payload=True))
            rest = [batch.tolist() for batch in iterator]
            assert [batch.tolist() for batch in other] == rest
            return len(rest)

    assert run_world(2, rank_does)[0] == [7, 7]


def test_dropped_items_are_told_of():
    loader = loader_of(Alone(), Lying(8, 9), 2, batch_size=4, shards=1)
    with loader, pytest.warns(RuntimeWarning, match=r"\(Lying\) has more than the 8") as caught:
        assert sum(1 for _ in loader) == 4
    assert caught[0].filename == __file__
    with loader_of(Alone(), Lying(8, 9), 2, batch_size=4, shards=1) as loader:
        assert sum(1 for _ in zip(range(4), loader, strict=False)) == 4
        assert sum(1 for _ in zip(range(4), loader, strict=False)) == 4
        assert loader.state_dict()["epoch"] == 2


@pytest.mark.parametrize("factor", [2, Adaptive(2)])
def test_a_pass_that_is_empty_later_fails_where_others_wait(factor):
    def rank_does(member):
        source = Lying(40, 40, 0) if member.rank == 0 else Lying(40, 40, first=1000)
        with loader_of(member, source, factor, batch_size=4, steps_per_epoch=9) as loader:
            for _ in range(5):
                assert sum(1 for _ in loader) == 9

    with pytest.raises(AssertionError, match=r"source \(Lying\) has no item"):
        run_world(2, rank_does)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"shards": 4, "steps_per_epoch": 40}, r"multiple of 4 .* in every pass, got \[10\]"),
        ({"shards": 1, "epochs": 2}, "the first has 40 items and a later one 10"),
    ],
)
def test_passes_that_do_not_go_together_are_refused(options, why):
    loader = loader_of(Alone(), Changing(), 2, batch_size=4, **options)
    with loader, pytest.raises(ConfigError, match=why):
        for _ in range(3):
            for _ in loader:
                pass


def test_an_empty_rank_of_unknown_length_is_told_of():
    def rank_does(member):
        source = Unsized(list(map(np.int64, range(20 * member.rank))))
        options = {"batch_size": 4, "steps_per_epoch": 7}
        loader = loader_of(member, source, Adaptive(4), **options)
        with loader, pytest.raises(ConfigError, match="items on every rank, and rank 0 has none"):
            next(iter(loader))

    run_world(2, rank_does)


FIRST, SECOND = np.ones((5, 2)), np.arange(5.0)


@pytest.mark.filterwarnings("ignore:the source.*yielded nothing")
@pytest.mark.parametrize(
    ("full", "empty"),
    [
        (FIRST, np.zeros((0, 2))),
        (FIRST, []),
        (list(FIRST), np.zeros((0, 2))),
        ((FIRST, SECOND), []),
        (list(zip(FIRST, SECOND, strict=True)), (np.zeros((0, 2)), np.zeros(0))),
        ((FIRST, np.array(list("abcde"))), []),
    ],
)
def test_a_rank_without_items_gets_rows_of_the_same_shape(full, empty):
    def rank_does(member):
        with loader_of(member, full if member.rank else empty, 2, batch_size=4) as loader:
            batches = list(loader)
        columns = [batch if isinstance(batch, tuple) else (batch,) for batch in batches]
        return [[np.shape(column) for column in each] for each in columns]

    results, _ = run_world(2, rank_does)
    assert results[0] == results[1]
    assert results[0][0][0] == (4, 2)


def test_a_native_source_ends_where_was_agreed():
    class Longer(Numbers):
        def __len__(self):
            return 40

    def rank_does(member):
        source = Longer(100) if member.rank else Numbers(40)
        with loader_of(member, source, 2, batch_size=4, shuffle_buffer=8) as loader:
            return [sum(1 for _ in loader) for _ in range(3)]

    with pytest.warns(RuntimeWarning, match=r"\(Longer\) has more than the 40") as caught:
        results, _ = run_world(2, rank_does)
    assert results == [[20] * 3] * 2
    assert len(caught) == 3
