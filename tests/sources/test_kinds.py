"""Kinds: what each source is, where it can start, how it ends, what it refuses."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyecho
from pyecho.config import Config
from pyecho.source import source_of


class Shuffled(list[int]):
    """Iterates in an order of its own."""

    def __iter__(self) -> Iterator[int]:
        return reversed(self)


def test_list_with_an_order_of_its_own_is_iterated() -> None:
    source = source_of(Shuffled([0, 1, 2]), Config(batch_size=None))
    assert [*source.open(0).items] == [2, 1, 0]


def test_memory_map_is_read_in_chunks_that_are_copies(tmp_path: Any) -> None:
    np.save(tmp_path / "rows.npy", np.arange(6.0))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    source = source_of(mapped, Config(batch_size=2))
    assert not source.in_memory
    [chunk] = source.open(0).items
    assert chunk.tolist() == list(range(6))
    assert not np.shares_memory(chunk, mapped)
    strided = source_of(np.lib.stride_tricks.as_strided(mapped), Config(batch_size=None))
    rows = [*strided.open(0).items]
    assert rows == list(range(6))


def test_query_of_polars_says_collect() -> None:
    frame = pytest.importorskip("polars").LazyFrame({"x": [1]})
    with pytest.raises(pyecho.ConfigError, match=r"a LazyFrame.*\.collect\(\)"):
        source_of(frame, Config(batch_size=2))


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
def test_iterator_that_ends_in_an_epoch_of_all_batches_is_an_error(options: Any) -> None:
    loader = pyecho.EchoLoader(iter(range(4)), 1, batch_size=2, steps_per_epoch=3, **options)
    taken: list[int] = []
    with pytest.raises(pyecho.EchoError, match="pass one that can be read again"):
        for batch in loader:
            taken.extend(batch.tolist())
    assert {0, 1, 2, 3}.issuperset(taken)
    loader.close()
