"""Kinds: what each source is, where it can start, how it ends, what it refuses."""

import collections
import copy
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from members import Dataset, Unsized

import pyecho
from pyecho.source import Source, source_of
from pyecho.source.reader import Limited


class ByIndex(Sequence[int]):
    """A sequence whose iterators are generators, which Ctrl-C would end."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: Any) -> Any:
        return range(4)[index]


class Shuffled(list[int]):
    """Iterates in an order of its own."""

    def __iter__(self) -> Iterator[int]:
        return reversed(self)


@pytest.mark.parametrize(
    ("given", "traits"),
    [
        ([0, 1, 2, 3], "in_memory indexed"),
        (range(4), "in_memory indexed"),
        (np.arange(4), "in_memory indexed"),
        (Dataset(range(4)), "indexed"),
        (ByIndex(), "indexed"),
        (collections.deque(range(4)), "indexed"),
        (Unsized(range(4)), ""),
        (iter(range(4)), "one_shot"),
    ],
)
def test_each_kind_tells_its_traits_and_starts_where_it_can(given: Any, traits: str) -> None:
    source = source_of(given, batch_size=None)
    names = ("in_memory", "indexed", "one_shot", "batched", "native")
    assert {name for name in names if getattr(source, name)} == set(traits.split())
    if source.indexed:
        for start in range(5):
            assert [*source.read(start)] == list(range(start, 4))
    else:
        assert [*source.read()] == list(range(4))


def test_no_reader_is_a_generator() -> None:
    for given in ([1], (np.ones(2), [1, 2]), Dataset([1]), ByIndex(), np.ones(2)):
        for batch_size in (None, 2):
            assert not isinstance(
                source_of(given, batch_size=batch_size).read(), collections.abc.Generator
            )


def test_a_list_with_an_order_of_its_own_is_iterated() -> None:
    source = source_of(Shuffled([0, 1, 2]), batch_size=None)
    assert [*source.read()] == [2, 1, 0]


def test_a_memory_map_is_read_in_chunks_that_are_copies(tmp_path: Any) -> None:
    np.save(tmp_path / "rows.npy", np.arange(6.0))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    source = source_of(mapped, batch_size=2)
    assert not source.in_memory
    [chunk] = source.read()
    assert chunk.tolist() == list(range(6))
    assert not np.shares_memory(chunk, mapped)
    rows = [*source_of(np.lib.stride_tricks.as_strided(mapped), batch_size=None).read()]
    assert rows == list(range(6))


def test_a_query_of_polars_says_collect() -> None:
    frame = pytest.importorskip("polars").LazyFrame({"x": [1]})
    with pytest.raises(pyecho.ConfigError, match=r"a LazyFrame.*\.collect\(\)"):
        source_of(frame, batch_size=2)


class Rewinding:
    """Begins again at each ``iter()``, as loaders of video frames do."""

    def __init__(self, count: int) -> None:
        self.count, self.place = count, 0

    def __iter__(self) -> "Rewinding":
        self.place = 0
        return self

    def __next__(self) -> int:
        if self.place == self.count:
            raise StopIteration
        self.place += 1
        return self.place


class NextAlone:
    """An iterator with as little as ``iter()`` may return: ``__next__``."""

    def __init__(self) -> None:
        self.__next = iter(range(1, 6)).__next__

    def __next__(self) -> int:
        return self.__next()


class Iterated:
    def __iter__(self) -> NextAlone:
        return NextAlone()  # type: ignore[return-value]


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("source", [Rewinding, Iterated])
def test_iterators_are_iterated_once_a_pass(source: Any, batch_size: int) -> None:
    given = source(5) if source is Rewinding else source()
    loader = pyecho.EchoLoader(given, 1, batch_size=batch_size, shuffle_buffer=1)
    for _ in range(2):
        assert [row for batch in loader for row in batch.tolist()] == [1, 2, 3, 4, 5]
    loader.close()


@pytest.mark.parametrize("options", [{"pad_last": True}, {"shards": 1}])
def test_an_iterator_that_ends_in_an_epoch_of_all_batches_is_an_error(options: Any) -> None:
    loader = pyecho.EchoLoader(iter(range(4)), 1, batch_size=2, steps_per_epoch=3, **options)
    taken: list[int] = []
    with pytest.raises(pyecho.EchoError, match="pass one that can be read again"):
        for batch in loader:
            taken.extend(batch.tolist())
    assert {0, 1, 2, 3}.issuperset(taken)
    loader.close()


# ---------------------------------------------------------------- limits


def limited(source: Source, length: int, start: int = 0) -> tuple[list[Any], bool]:
    reader = Limited(source.read(), length, source, start=start)
    taken = [*reader]
    assert next(reader, None) is None
    return taken, reader.exceeded


def test_a_limit_leaves_out_what_is_more_and_says_so() -> None:
    assert limited(source_of(Unsized([1, 2, 3]), batch_size=None), 3) == ([1, 2, 3], False)
    assert limited(source_of(Unsized([1, 2, 3]), batch_size=None), 2) == ([1, 2], True)
    assert limited(source_of(Unsized([1, 2, 3]), batch_size=None), 4, start=2) == ([1, 2], True)
    assert limited(source_of(Unsized([1, 2, 3]), batch_size=None), 0) == ([], True)


def test_a_limit_cuts_the_last_batch() -> None:
    batches = Unsized([np.arange(3), np.arange(3, 6), np.arange(0)])
    source = source_of(batches, batch_size=2, unbatch=True)
    for length, exceeded in ((2, True), (3, True), (4, True), (6, False)):
        taken, more = limited(source, length)
        assert np.concatenate(taken).tolist() == list(range(length))
        assert more == exceeded


def test_a_limit_leaves_an_iterator_where_the_next_pass_begins() -> None:
    items = iter(range(5))
    source = source_of(items, batch_size=None)
    assert limited(source, 2) == ([0, 1], False)
    assert limited(source, 3) == ([2, 3, 4], False)


def test_a_source_that_ends_before_its_limit_is_an_error_with_both_numbers() -> None:
    source = source_of(Unsized([1, 2]), batch_size=None)
    reader = Limited(source.read(), 5, source, start=1)
    assert [next(reader), next(reader)] == [1, 2]
    for _ in range(2):
        with pytest.raises(pyecho.EchoError, match=r"\(Unsized\) has ended after 3 .* was 5"):
            next(reader)


# ---------------------------------------------------------------- states


class Stateful:
    """Each pass goes on with the numbers of the one before it."""

    def __init__(self, items: int = 3) -> None:
        self.items, self.yielded, self.in_pass = items, 0, 0

    def __iter__(self) -> Iterator[int]:
        while self.in_pass < self.items:
            self.in_pass += 1
            self.yielded += 1
            yield self.yielded
        self.in_pass = 0

    def state_dict(self) -> dict[str, int]:
        return {"yielded": self.yielded, "in_pass": self.in_pass}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.yielded, self.in_pass = state["yielded"], state["in_pass"]


class Counting(Iterator[int]):
    """An iterator with a state, also one that weak references cannot name."""

    __slots__ = ("place",)

    def __init__(self) -> None:
        self.place = 0

    def __next__(self) -> int:
        if self.place == 3:
            raise StopIteration
        self.place += 1
        return self.place

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


class CountingPasses:
    def __iter__(self) -> Counting:
        return Counting()


def stateful_loader() -> Any:
    loader = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    return loader([1, 2, 3], batch_size=None)


STATES = [Stateful, CountingPasses, stateful_loader]


@pytest.mark.filterwarnings("ignore:'set_vital':UserWarning")  # of torchdata
@pytest.mark.parametrize("make", STATES)
@pytest.mark.parametrize("place", range(5))  # 4: after its end
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_state_goes_on_where_it_was_taken_however_often(
    make: Any, place: int, times: int
) -> None:
    def opened() -> Source:
        return source_of(make(), batch_size=None)

    source = opened()
    items = source.read()
    taken = [next(items, None) for _ in range(place)]
    for _ in range(times):
        state = pickle.loads(pickle.dumps(source.state()))
        source = opened()
        items = source.read_on(state)
    rest = [*items]
    assert [each for each in [*taken, *rest] if each is not None] == [1, 2, 3]
    state = source.state()
    assert state is not None
    source = opened()
    source.load(state)
    assert source.state() == state
    assert [*source.read()] == ([4, 5, 6] if make is Stateful else [1, 2, 3])


def test_a_loaded_state_is_kept_until_an_item_was_read() -> None:
    source = source_of(Stateful(), batch_size=None)
    items = source.read()
    next(items)
    state = source.state()
    again = source_of(Stateful(), batch_size=None)
    items = again.read_on(state)  # type: ignore[arg-type]
    assert again.state() is state
    assert next(items) == 2
    assert again.state()["state"] == {"yielded": 2, "in_pass": 2}  # type: ignore[index]


def test_a_state_that_this_source_cannot_load_is_refused() -> None:
    own = {"iterator": False, "ended": False, "state": {}}
    for given in ([1], np.ones(2), Dataset([1])):
        with pytest.raises(pyecho.CheckpointError, match="has no load_state_dict"):
            source_of(given, batch_size=None).read_on(own)
    for other in ([1], Stateful(), Unsized([1])):
        with pytest.raises(pyecho.CheckpointError, match="have no load_state_dict"):
            source_of(other, batch_size=None).read_on(own | {"iterator": True})


def test_a_copy_and_a_pickle_leave_the_pass_to_the_original() -> None:
    source = source_of(CountingPasses(), batch_size=None)
    items = source.read()
    next(items)
    assert source.state() == {"iterator": True, "ended": False, "state": {"place": 1}}
    for other in (copy.copy(source), pickle.loads(pickle.dumps(source))):
        assert other.holder is None
        assert [*other.read()] == [1, 2, 3]
    assert next(items) == 2
