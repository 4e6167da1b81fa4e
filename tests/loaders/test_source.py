"""What is a source, how one pass over it is read, and what is known of it before."""

import collections
import threading

import numpy as np
import pytest
import torch
from torch.utils import data

from pyecho import ConfigError
from pyecho.source import CHUNK_BYTES, Source

Pair = collections.namedtuple("Pair", "x y")


def source_of(source, batch_size=4, *, unbatch=False):
    return Source(source, batch_size=batch_size, unbatch=unbatch)


class MapStyle:
    """A map-style dataset: any index is answered, so only its length ends it."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


class TorchDataset(MapStyle, data.Dataset):
    pass


class OldProtocol:
    def __getitem__(self, index):
        if index == 4:
            raise IndexError
        return index


class NoLength(OldProtocol):
    def __len__(self):
        raise TypeError


class LengthToDo(OldProtocol):
    def __len__(self):
        raise NotImplementedError


class Reiterable:
    def __iter__(self):
        yield from range(4)


class OwnList(list):
    def __iter__(self):
        yield from range(4)


class EndlessStream(data.IterableDataset):
    def __iter__(self):
        yield from range(4)


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize(
    "make",
    [
        lambda: [0, 1, 2, 3],
        lambda: (0, 1, 2, 3),
        lambda: range(4),
        lambda: iter(range(4)),
        lambda: dict.fromkeys(range(4)).keys(),
        lambda: np.array([0, 1, 2, 3], dtype=object),
        lambda: data.DataLoader(range(4), batch_size=None),
        lambda: data.DataLoader(EndlessStream(), batch_size=None),
        *(MapStyle, TorchDataset, OldProtocol, NoLength, Reiterable, OwnList, EndlessStream),
    ],
)
def test_whatever_can_be_iterated_yields_its_items_one_by_one(make, batch_size):
    source = source_of(make(), batch_size)
    assert list(source.read()) == [0, 1, 2, 3]
    assert not source.batched


X, Y = np.arange(12.0).reshape(4, 3), np.arange(4)


@pytest.mark.parametrize(
    "make",
    [np.array, np.asfortranarray, torch.tensor, lambda a: torch.tensor(a).requires_grad_()],
)
@pytest.mark.parametrize(("batch_size", "unbatch"), [(None, False), (2, True)])
def test_arrays_and_tensors_are_read_row_by_row_where_rows_are_the_items(make, batch_size, unbatch):
    rows = list(source_of(make(X), batch_size, unbatch=unbatch).read())
    assert [row.tolist() for row in rows] == X.tolist()
    assert all(type(row) is type(make(X)) for row in rows)
    pairs = list(source_of((make(X), Y), batch_size, unbatch=unbatch).read())
    assert [(x.tolist(), y) for x, y in pairs] == list(zip(X.tolist(), range(4), strict=True))


def test_a_tensor_of_many_rows_is_read_whole():
    tensor = torch.arange(1000)
    assert torch.equal(torch.stack(list(source_of(tensor, None).read())), tensor)


@pytest.mark.parametrize("columns", [1, 40_000, 10**6])
@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_examples_of_arrays_come_in_chunks_of_about_a_megabyte_that_are_views(make, columns):
    array = make(np.arange(3 * 10**6, dtype=np.int8).reshape(-1, columns))
    source = source_of(array)
    chunks = list(source.read())
    assert source.batched
    assert np.array_equal(np.concatenate(chunks), array)
    assert all(type(chunk) is type(array) for chunk in chunks)
    assert all(chunk.nbytes <= CHUNK_BYTES or len(chunk) == 1 for chunk in chunks)
    assert len(chunks) <= 4
    assert np.shares_memory(np.asarray(chunks[-1]), np.asarray(array))


def test_examples_of_a_tuple_of_arrays_come_in_chunks_of_the_same_rows():
    x, y, z = np.zeros((3000, 500)), torch.arange(3000), np.arange(3000)
    source = source_of((x, y, z))
    chunks = list(source.read())
    assert source.batched
    assert len(chunks) > 1
    assert all(len(a) == len(b) and b.tolist() == c.tolist() for a, b, c in chunks)
    assert torch.equal(torch.cat([chunk[1] for chunk in chunks]), y)
    [pair] = source_of(Pair(X, Y)).read()
    assert isinstance(pair, Pair)


def test_objects_among_the_arrays_of_a_tuple_are_read_row_by_row():
    source = source_of((Y, np.array(["a", "b", "c", "d"], dtype=object)))
    assert list(source.read()) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    assert not source.batched


@pytest.mark.parametrize(
    "arrays", [[X, Y], (X,), (X, 1), (X, np.array(3)), (X, torch.tensor(3)), (X, [1, 2, 3, 4])]
)
def test_lists_and_other_tuples_are_items_of_their_own(arrays):
    items = list(source_of(arrays).read())
    assert len(items) == len(arrays)
    assert items[0] is X


def test_tuples_of_arrays_of_different_lengths_are_refused():
    with pytest.raises(ConfigError, match=r"lengths differ: \[4, 3\]; pass a list if"):
        source_of((X, Y[:3]))


@pytest.mark.parametrize("view", [lambda array: array, lambda array: np.asarray(array)[::2]])
def test_chunks_of_memory_mapped_arrays_are_read_in(tmp_path, view):
    np.save(tmp_path / "rows.npy", X)
    mapped = view(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    source = source_of((mapped, mapped))
    [(chunk, _)] = source.read()
    assert not source.in_memory
    assert type(chunk) is np.ndarray
    assert not np.shares_memory(chunk, mapped)
    assert chunk.tolist() == mapped.tolist()


def test_sparse_tensors_are_iterated_as_they_are():
    source = source_of(torch.eye(2).to_sparse())
    assert not source.batched
    assert [row.to_dense().tolist() for row in source.read()] == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    "empty", [[], (), range(0), iter(()), np.zeros((0, 3)), torch.zeros(0), (X[:0], Y[:0])]
)
@pytest.mark.parametrize(("batch_size", "unbatch"), [(None, False), (2, False), (2, True)])
def test_an_empty_source_just_ends(empty, batch_size, unbatch):
    assert list(source_of(empty, batch_size, unbatch=unbatch).read()) == []


def test_the_thread_that_reads_begins_the_pass():
    began = []

    class Noted:
        def __iter__(self):
            began.append(threading.current_thread())
            return iter(())

    source = source_of(Noted())
    assert not began
    thread = threading.Thread(target=source.read)
    thread.start()
    thread.join()
    assert began == [thread]


# ---------------------------------------------------------------- what is known beforehand


@pytest.mark.parametrize("source", [[1], (1,), range(3), X, torch.ones(3), (X, Y), Pair(1, 2)])
def test_sources_in_memory_never_wait(source):
    assert source_of(source).in_memory


@pytest.mark.parametrize(
    "source",
    [OwnList(), MapStyle(), iter([1]), data.DataLoader(Y), torch.ones(3, device="meta")],
)
def test_other_sources_may_wait(source):
    assert not source_of(source).in_memory


class Prefetcher:
    """Has ``__next__``, yet every ``iter()`` begins a new pass."""

    def __iter__(self):
        return iter([1])

    def __next__(self):
        return 1


@pytest.mark.parametrize(
    ("source", "one_shot"),
    [
        (iter([1]), True),
        ((n for n in range(3)), True),
        (map(int, []), True),
        ([1], False),
        (Reiterable(), False),
        (data.DataLoader(Y), False),
        (Prefetcher(), False),
    ],
)
def test_only_iterators_are_read_once(source, one_shot):
    source = source_of(source)
    source.read()
    assert source.one_shot == one_shot


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize(
    ("source", "items"),
    [
        ([1, 2], 2),
        (X, 4),
        (torch.tensor(X), 4),
        ((X, Y), 4),
        (np.array([None, 1]), 2),
        (MapStyle(), 4),
        (TorchDataset(), 4),
        (data.DataLoader(Y, batch_size=3), 2),
        (NoLength(), None),
        (LengthToDo(), None),
        (OldProtocol(), None),
        (EndlessStream(), None),
        (data.DataLoader(EndlessStream()), None),
        (iter([1]), None),
    ],
)
def test_items_of_a_pass_are_the_length_of_the_source(source, batch_size, items):
    assert source_of(source, batch_size).items() == items


INDICES = [[0, 1, 2], [3], [1, 0]]


@pytest.mark.parametrize(
    "source",
    [
        np.zeros((5, 4, 3)),
        torch.zeros(5, 4),
        (np.zeros((5, 4, 3)), np.zeros((5, 4))),
        [X, X[:3]],
        ({"x": X, "n": Y}, {"x": X[:1], "n": Y[:1]}),
        [(torch.tensor(Y), "name")],
        np.array([X, X[:3], None], dtype=object)[:2],
        *(
            data.DataLoader(MapStyle(), batch_size=3, drop_last=drop_last, **arguments)
            for drop_last in (False, True)
            for arguments in (
                {},
                {"shuffle": True},
                {"sampler": data.RandomSampler(MapStyle(), replacement=True, num_samples=11)},
                {"sampler": [3, 2]},
            )
        ),
        data.DataLoader(MapStyle(), batch_sampler=INDICES),
        data.DataLoader(MapStyle(), batch_sampler=data.BatchSampler(range(3), 2, False)),
    ],
)
def test_examples_of_a_pass_are_known_with_unbatch(source):
    source = source_of(source, unbatch=True)
    rows = [next(len(x) for x in flat(batch) if np.ndim(x)) for batch in source.read()]
    assert source.batched
    assert source.items() == sum(rows)


def flat(batch):
    return batch.values() if isinstance(batch, dict) else batch if type(batch) is tuple else [batch]


class Skipping(data.DataLoader):
    def __iter__(self):
        return iter([])


class OwnBatches(data.BatchSampler):
    def __iter__(self):
        yield [0]


@pytest.mark.parametrize(
    "source",
    [
        [1, 2],
        ["ab", "cd"],
        Y,
        MapStyle(),
        iter([X]),
        Reiterable(),
        data.DataLoader(MapStyle(), batch_size=None),
        data.DataLoader(EndlessStream(), batch_size=2),
        data.DataLoader(MapStyle(), sampler=Reiterable(), batch_size=2),
        data.DataLoader(MapStyle(), batch_sampler=Reiterable()),
        data.DataLoader(MapStyle(), batch_sampler=OwnBatches(range(4), 2, False)),
        Skipping(MapStyle(), batch_size=2),
    ],
)
def test_examples_that_cannot_be_counted_with_certainty_are_unknown(source):
    assert source_of(source, unbatch=True).items() is None


def test_the_epoch_is_told_once_to_all_that_ask_for_it():
    told = []

    class Told:
        def set_epoch(self, epoch):
            told.append((self, epoch))

    class Everything(Told, Reiterable):
        pass

    source = Everything()
    source.sampler, source.batch_sampler, source.dataset = Told(), Told(), Told()
    source.batch_sampler.sampler = source.sampler
    source_of(source).tell_epoch(3)
    assert told == [
        (each, 3) for each in (source, source.sampler, source.batch_sampler, source.dataset)
    ]
    sampler = data.DistributedSampler(MapStyle(), num_replicas=2, rank=0)
    loader = data.DataLoader(
        MapStyle(), batch_sampler=data.BatchSampler(sampler, batch_size=2, drop_last=False)
    )
    source_of(loader).tell_epoch(5)
    assert sampler.epoch == 5


# ---------------------------------------------------------------- mistakes


class PandasFrame:
    columns = ("x", "y")
    __iter__ = iterrows = to_dict = lambda self: iter(self.columns)


class PolarsFrame:
    columns = ("x", "y")
    __iter__ = iter_rows = to_dicts = lambda self: iter(self.columns)


class ArrowTable:
    columns = ("x", "y")
    __getitem__ = __len__ = to_pylist = lambda self: None


class NotIterable:
    __iter__ = None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"x": X}, "a dict, whose items would be its keys; pass .* a list of dicts"),
        ("abc", "a str, whose items would be its characters"),
        (b"abc", "a bytes, whose items would be its characters"),
        (np.array(3), "no axes; its first axis must count the items"),
        (torch.tensor(3), "no axes"),
        (PandasFrame(), r"PandasFrame.* its columns, not its rows; .*to_numpy.*to_dict\('records'"),
        (PolarsFrame(), r"PolarsFrame.*to_numpy\(\), or .to_dicts\(\)"),
        (ArrowTable(), r"ArrowTable.*to_pylist\(\)"),
        (3, "must be iterable .*a DataLoader.*, got int$"),
        (None, "got NoneType"),
        (NotIterable(), "got NotIterable$"),
        (lambda: iter([]), "got function; call it and pass what it returns"),
        (list, "got type; call it"),
    ],
)
def test_what_cannot_be_a_source_is_refused_with_a_hint(source, message):
    with pytest.raises(ConfigError, match=message):
        source_of(source)
