"""Columns: arrays, lists and datasets of equal length, the rows of which together are the items."""

import collections
import itertools
import types
from typing import Any

import numpy as np
import pytest
import torch
from members import Dataset, Sized, Sliced, plain

import pyecho
from pyecho.config import Config
from pyecho.source import Source, source_of

Pair = collections.namedtuple("Pair", "x y")
X, Y = np.arange(12.0).reshape(4, 3), np.arange(4)
NAMES = [*"abcd"]


def rows(source: Source, start: int = 0) -> list[Any]:
    """The items, with those that come in batches taken apart."""
    items = [*source.open(0, start).items]
    if not source.batched:
        return items
    if isinstance(items[0], dict):
        parts = [
            [dict(zip(b, row, strict=True)) for row in zip(*b.values(), strict=True)] for b in items
        ]
    elif isinstance(items[0], tuple):
        kind = type(items[0])
        make = getattr(kind, "_make", tuple)
        parts = [[make(row) for row in zip(*batch, strict=True)] for batch in items]
    else:
        parts = [[*batch] for batch in items]
    return [*itertools.chain.from_iterable(parts)]


EXPECTED_PAIRS = [(x, y) for x, y in zip(X, Y, strict=True)]
TUPLES = {
    "arrays": (X, Y),
    "tensors": (torch.tensor(X), torch.tensor(Y)),
    "mixed": (X, torch.tensor(Y)),
    "h5py": (Sized(X), Sized(Y)),
    "zarr": (Sliced(X), Sliced(Y)),
    "array and h5py": (X, Sliced(Y)),
    "list": (X, [0, 1, 2, 3]),
    "range": (Sliced(X), range(4)),
    "dataset": (Dataset(X), Y),
    "datasets": (Dataset(X), Dataset(Y)),
}
BATCHED = {"arrays", "tensors", "mixed", "h5py", "zarr", "array and h5py"}


@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize(
    "options",
    [{"batch_size": None}, {"batch_size": 2}, {"batch_size": 2, "collate_fn": list}],
    ids=["batch echoing", "example echoing", "collate_fn"],
)
@pytest.mark.parametrize("name", TUPLES)
@pytest.mark.parametrize("form", ["tuple", "namedtuple", "dict", "mapping"])
def test_rows_of_columns_keep_the_form(
    form: str, name: str, options: dict[str, Any], start: int
) -> None:
    x, y = TUPLES[name]
    given: Any = {
        "tuple": (x, y),
        "namedtuple": Pair(x, y),
        "dict": {"x": x, "y": y},
        "mapping": types.MappingProxyType({"x": x, "y": y}),
    }[form]
    source = source_of(given, Config(**options))
    assert source.indexed
    assert source.length() == 4
    assert source.batched == (
        name in BATCHED and options["batch_size"] is not None and "collate_fn" not in options
    )
    made = {"tuple": lambda *xy: xy, "namedtuple": Pair}.get(form, lambda x, y: {"x": x, "y": y})
    assert plain(rows(source, start)) == plain([made(*xy) for xy in EXPECTED_PAIRS[start:]])


def test_columns_that_slice_are_read_by_chunk_of_the_file() -> None:
    for given in (Sliced(X, rows=3), Sliced(X.astype("f4"), rows=3)):
        for options in ({"batch_size": 2}, {"batch_size": None}):
            given.read.clear()
            assert plain(rows(source_of(given, Config(**options)))) == plain([*X])
            assert all(isinstance(each, slice) for each in given.read)
            assert len(given.read) == 1
    wide = Sliced(np.zeros((8, 200_000)), rows=2)  # a chunk is more than a megabyte
    rows(source_of(wide, Config(batch_size=2)))
    assert [(each.start, each.stop) for each in wide.read] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    wide.read.clear()
    rows(source_of(wide, Config(batch_size=2)), start=3)
    assert [(each.start, each.stop) for each in wide.read] == [(3, 4), (4, 6), (6, 8)]


def test_objects_in_a_column_that_slices_come_by_row() -> None:
    source = source_of((Sliced(np.array(NAMES, object)), Y), Config(batch_size=2))
    assert not source.batched
    assert rows(source) == [*zip(NAMES, Y, strict=True)]


def test_columns_wait_unless_all_lie_in_memory() -> None:
    assert source_of((X, NAMES), Config(batch_size=2)).in_memory
    assert not source_of((X, Sliced(Y)), Config(batch_size=2)).in_memory
    assert not source_of((X, Dataset(Y)), Config(batch_size=2)).in_memory


def test_sparse_matrix_is_no_column() -> None:
    sparse = pytest.importorskip("scipy.sparse").eye_array(4).tocsr()
    source = source_of((sparse, Y), Config(batch_size=None))
    assert source.length() == 2
    assert next(source.open(0).items) is sparse


def test_key_with_a_hash_of_its_own_is_kept() -> None:
    key = collections.namedtuple("Key", "name")("x")
    [first, *_] = source_of({key: X, 2: Y}, Config(batch_size=None)).open(0).items
    assert plain(first) == {key: [0, 1, 2], 2: 0}


# ---------------------------------------------------------------- lists: columns or items


@pytest.mark.parametrize(
    "given", [[X, Y], [X, X.astype("f4")], [X, NAMES], [X, Dataset(Y)], [X, torch.tensor(X)]]
)
def test_list_of_columns_that_differ_is_columns_in_example_echoing_only(given: Any) -> None:
    source = source_of(given, Config(batch_size=2))
    assert source.length() == 4
    assert plain(rows(source)) == plain([(x, given[1][i]) for i, x in enumerate(X)])
    for options in ({"batch_size": None}, {"batch_size": 2, "collate_fn": list}):
        with pytest.raises(pyecho.ConfigError, match=r"pass a tuple.*an object with __iter__"):
            source_of(given, Config(**options))


@pytest.mark.parametrize("batch_size", [None, 2])
def test_list_with_a_member_that_slices_is_columns(batch_size: int | None) -> None:
    for given in ([Sliced(X), Sliced(X)], [Sliced(X), NAMES], [Y, Sliced(X)]):
        source = source_of(given, Config(batch_size=batch_size))
        expected = [tuple(each[i] for each in given) for i in range(4)]
        assert plain(rows(source)) == plain(expected)


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize(
    "given",
    [
        [X, X],
        [X, X[:3], X[:1]],
        [X, Y[:3]],
        [Y, Y.astype("f4"), X, X, X],  # more than there are rows
        [NAMES, NAMES],
        [[X, 1], [X, 2]],
        [Dataset(X), Dataset(X)],
        [{"x": X}, {"x": X}],
        [X],
        (X,),
        (X, 1),
        (X, np.array(3)),
        ((X, Y), (X, Y)),
        ("abcd", "efgh"),
        ({"x": X}, {"x": X}),
    ],
)
def test_other_lists_and_tuples_are_items(given: Any, batch_size: int | None) -> None:
    source = source_of(given, Config(batch_size=batch_size))
    assert source.length() == len(given)
    assert all(each is item for each, item in zip(source.open(0).items, given, strict=True))


def test_unbatch_takes_a_list_of_arrays_for_one_of_batches() -> None:
    source = source_of([X, X.astype("f4")], Config(batch_size=2, unbatch=True))
    assert source.length() == 8
    assert len([*source.open(0).items]) == 2


def test_h5py_and_zarr_members_are_columns(tmp_path: Any) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        x = file.create_dataset("x", data=X, chunks=(2, 3))
        y = file.create_dataset("y", data=Y)
        for given in ((x, y), {"x": x, "y": y}, file, [x, y], (x, NAMES)):
            for batch_size in (None, 2):
                source = source_of(given, Config(batch_size=batch_size))
                assert source.length() == 4
                assert np.array_equal([next(iter(_values(row))) for row in rows(source)], X)
        assert np.array_equal(rows(source_of(x, Config(batch_size=2))), X)


class Group:
    """As a group of zarr, which is no mapping."""

    def __init__(self, **members: Any) -> None:
        self._members = members

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Any:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def keys(self) -> Any:
        """In another order each time."""
        self._members = dict(reversed(self._members.items()))
        return self._members.keys()

    array_keys = keys


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"batch_size": 2, "shuffle": True}])
def test_group_of_zarr_is_columns(options: dict[str, Any]) -> None:
    loader = pyecho.EchoLoader(Group(x=Sliced(X), y=Sliced(Y)), 1, **options)
    assert all(list(row) == ["x", "y"] for row in loader)
    found = [np.atleast_1d(row["y"]).tolist() for row in loader]
    assert sorted(itertools.chain(*found)) == Y.tolist()
    with pytest.raises(pyecho.ConfigError, match="'b' is a Group"):
        pyecho.EchoLoader(Group(a=Sliced(X), b=Group(y=Sliced(Y))))


@pytest.mark.parametrize(
    "chunks", [((1, 3), (3,)), ((4,), (3,)), (2,), (), None, ((), ()), 3, "auto", (None,)]
)
def test_chunks_of_a_column_may_be_told_in_any_way(chunks: Any) -> None:
    column = Sized(X)
    column.chunks = chunks
    assert np.array_equal(rows(source_of(column, Config(batch_size=2))), X)


@pytest.mark.parametrize("columns", [dict, tuple])
@pytest.mark.parametrize("workers", [0, 2])
def test_columns_of_batches_have_a_length_however_they_are_read(columns: Any, workers: int) -> None:
    x, y = np.zeros((5, 4, 3)), np.arange(20).reshape(5, 4)
    given = (x, y) if columns is tuple else {"x": x, "y": y}
    for options in ({}, {"shuffle": True}):
        loader = pyecho.EchoLoader(
            given,
            2,
            batch_size=4,
            unbatch=True,
            num_workers=workers,
            workers="thread",
            **options,
        )
        assert len(loader) == sum(1 for _ in loader) == 10


def _values(row: Any) -> Any:
    return row.values() if isinstance(row, dict) else row


@pytest.mark.parametrize("shuffle", [False, True])
def test_masks_of_rows_in_a_file_stay_with_them_and_are_refused_in_batches(tmp_path, shuffle):
    np.arange(60.0).tofile(tmp_path / "rows")
    rows = np.memmap(tmp_path / "rows", "f8", "r", shape=(20, 3))
    masked = np.ma.masked_array(rows, np.asarray(rows) > 30)
    items = list(pyecho.EchoLoader(masked, 1, shuffle=shuffle))
    assert sum(item.mask.sum() for item in items) == masked.mask.sum()
    with pytest.raises(pyecho.ConfigError, match="lose their mask"):
        list(pyecho.EchoLoader(masked, 1, batch_size=2, shuffle=shuffle))
