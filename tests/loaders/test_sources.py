"""Sources: whatever can be iterated."""

import threading

import numpy as np
import pytest
from rows import rows_of

import pyecho

FACTOR = 2
EXPECTED = np.repeat(np.arange(20), FACTOR)


def numbers(source, **arguments):
    return rows_of(pyecho.EchoLoader(source, FACTOR, batch_size=3, **arguments)).ravel()


class Reiterable:
    def __init__(self):
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        yield from range(20)


class Indexable:
    """The old protocol: no __iter__, but __getitem__ up to IndexError."""

    def __getitem__(self, index):
        if index >= 20:
            raise IndexError
        return index


@pytest.mark.parametrize(
    "make",
    [
        lambda: list(range(20)),
        lambda: tuple(range(20)),
        lambda: range(20),
        lambda: (number for number in range(20)),
        lambda: iter(range(20)),
        lambda: dict.fromkeys(range(20)).keys(),
        lambda: map(int, range(20)),
        Reiterable,
        Indexable,
        lambda: np.arange(20),
        lambda: np.arange(40)[::2] // 2,
        lambda: np.arange(20.0)[:, None],
    ],
)
def test_any_iterable_is_a_source(make):
    assert np.array_equal(numbers(make()), EXPECTED)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_memory_mapped_arrays(tmp_path, batch_size):
    source = np.arange(400, dtype=np.float32).reshape(40, 10)
    np.save(tmp_path / "rows.npy", source)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    emitted = [batch.copy() for batch in pyecho.EchoLoader(mapped, 1, batch_size=batch_size)]
    stacked = np.stack(emitted) if batch_size is None else np.concatenate(emitted)
    assert np.array_equal(stacked, source)


def test_batch_echoing_of_an_array_hands_out_its_rows():
    source = np.arange(6).reshape(3, 2)
    emitted = list(pyecho.EchoLoader(source, 2))
    assert [row.tolist() for row in emitted] == [[0, 1], [0, 1], [2, 3], [2, 3], [4, 5], [4, 5]]
    assert np.shares_memory(emitted[0], source)


def test_the_source_is_read_in_one_pass_and_in_order():
    asked = []

    class Source:
        def __iter__(self):
            for number in range(30):
                asked.append(number)
                yield number

    list(pyecho.EchoLoader(Source(), 3, shuffle_buffer=10))
    assert asked == list(range(30))


def test_a_source_is_read_no_further_ahead_than_the_arguments_say():
    """What others had: prefetch off by one, or the last prefetched items dropped."""
    capacity, prefetch = 5, 3
    asked = 0

    def source():
        nonlocal asked
        for number in range(100):
            asked = number + 1
            yield number

    emitted = iter(pyecho.EchoLoader(source(), 1, shuffle_buffer=capacity, prefetch=prefetch))
    order = [next(emitted) for _ in range(10)]
    # Ten were emitted; the pool, what is made ahead, and one in the feeder's hand.
    assert asked <= 10 + capacity + prefetch + 1
    order += emitted
    assert sorted(order) == list(range(100)), "the items taken ahead come out, too"


def test_the_source_is_not_touched_before_iteration():
    source = Reiterable()
    loader = pyecho.EchoLoader(source)
    assert source.passes == 0
    list(loader)
    assert source.passes == 1


def test_threads_that_feed_are_daemons_named_after_pyecho():
    names = set()

    def source():
        for number in range(5):
            names.add((threading.current_thread().name, threading.current_thread().daemon))
            yield number

    list(pyecho.EchoLoader(source()))
    assert ("pyecho-feeder", True) in names


class TestTorch:
    torch = pytest.importorskip("torch")

    class Squares(torch.utils.data.Dataset):
        def __len__(self):
            return 20

        def __getitem__(self, index):
            if index >= 20:
                raise IndexError(index)
            return {"x": TestTorch.torch.full((2,), index), "y": index * index}

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            worker = TestTorch.torch.utils.data.get_worker_info()
            start, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
            yield from range(start, 20, step)

    def loader(self, source, factor=FACTOR, **arguments):
        import pyecho.torch

        return pyecho.torch.EchoLoader(source, factor, **arguments)

    @pytest.mark.parametrize("workers", [0, 2])
    def test_data_loaders_in_batch_echoing(self, workers):
        source = self.torch.utils.data.DataLoader(self.Squares(), batch_size=6, num_workers=workers)
        loader = self.loader(source)
        assert len(loader) == 8
        emitted = list(loader)
        assert [batch["x"][:, 0].tolist() for batch in emitted[::2]] == [
            [0, 1, 2, 3, 4, 5],
            [6, 7, 8, 9, 10, 11],
            [12, 13, 14, 15, 16, 17],
            [18, 19],
        ]
        assert all(first is again for first, again in zip(emitted[::2], emitted[1::2], strict=True))

    @pytest.mark.parametrize("workers", [0, 2])
    def test_data_loaders_of_batches_are_split(self, workers):
        source = self.torch.utils.data.DataLoader(self.Squares(), batch_size=6, num_workers=workers)
        loader = self.loader(source, batch_size=7, unbatch=True, shuffle_buffer=10)
        rows = [
            (int(x[0]), int(y))
            for batch in loader
            for x, y in zip(batch["x"], batch["y"], strict=True)
        ]
        assert sorted(rows) == sorted((n, n * n) for n in range(20) for _ in range(FACTOR))

    @pytest.mark.parametrize("workers", [0, 2])
    def test_data_loaders_of_examples(self, workers):
        source = self.torch.utils.data.DataLoader(
            self.Squares(), batch_size=None, num_workers=workers
        )
        batches = [batch["y"].tolist() for batch in self.loader(source, batch_size=20)]
        assert batches == [
            [n * n for n in range(10) for _ in range(2)],
            [n * n for n in range(10, 20) for _ in range(2)],
        ]

    def test_datasets_as_they_are(self):
        [batch] = self.loader(self.Squares(), factor=1, batch_size=20)
        assert batch["y"].tolist() == [n * n for n in range(20)]

    @pytest.mark.parametrize("workers", [0, 2])
    def test_iterable_datasets(self, workers):
        source = self.torch.utils.data.DataLoader(self.Stream(), batch_size=5, num_workers=workers)
        rows = [int(n) for batch in self.loader(source, batch_size=4, unbatch=True) for n in batch]
        assert sorted(rows) == EXPECTED.tolist()

    def test_several_epochs_of_a_data_loader_with_persistent_workers(self):
        source = self.torch.utils.data.DataLoader(
            self.Squares(), batch_size=5, num_workers=2, persistent_workers=True
        )
        loader = self.loader(source, shuffle_buffer=3)
        for _ in range(3):
            assert len(list(loader)) == 8
