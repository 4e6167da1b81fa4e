"""unbatch=True: the source yields batches, which are split into examples."""

from collections import namedtuple

import numpy as np
import pytest
from rows import rows_of

import pyecho

Pair = namedtuple("Pair", ["x", "y"])


def loader_of(source, factor=1, batch_size=4, **arguments):
    arguments = {"shuffle_buffer": 0} | arguments
    return pyecho.EchoLoader(source, factor, batch_size=batch_size, unbatch=True, **arguments)


def test_batches_of_any_size_are_put_together_again():
    source = np.split(np.arange(23), [1, 5, 5, 12])
    assert [batch.tolist() for batch in loader_of(source)] == [
        list(range(start, min(start + 4, 23))) for start in range(0, 23, 4)
    ]


def test_every_leaf_is_split_along_its_first_axis():
    source = [{"p": Pair(np.arange(6).reshape(3, 2), np.arange(3.0)), "n": [np.arange(3)]}] * 2
    [batch] = loader_of(source, batch_size=6)
    assert type(batch["p"]) is Pair
    assert batch["p"].x.tolist() == [[0, 1], [2, 3], [4, 5]] * 2
    assert batch["p"].y.tolist() == [0, 1, 2] * 2
    assert batch["n"][0].tolist() == [0, 1, 2] * 2


@pytest.mark.parametrize("kind", [list, tuple])
def test_columns_of_objects_are_split_beside_arrays(kind):
    source = [{"x": np.arange(3), "name": kind(["a", "b", "c"])} for _ in range(2)]
    batches = list(loader_of(source, factor=2, batch_size=5))
    assert [name for batch in batches for name in batch["name"]] == list("aabbccaabbcc")
    assert all(type(batch["name"]) is list for batch in batches)


def test_columns_of_python_numbers_travel_as_objects():
    [batch] = loader_of([{"x": np.arange(3), "n": [0.5, 1.5, 2.5]}], batch_size=3)
    assert batch["n"] == [0.5, 1.5, 2.5]


@pytest.mark.parametrize(
    "columns",
    [
        [np.array(["a", "bcd"]), np.array(["efghi"])],
        [np.array(["a", "bcd"], object), np.array(["efghi"], object)],
        [np.array(["a", "bcd"], np.dtypes.StringDType()), ("efghi",)],
    ],
    ids=["fixed width", "object", "StringDType"],
)
def test_arrays_of_strings_and_objects_are_columns(columns):
    source = [{"name": column, "x": np.zeros(len(column))} for column in columns]
    [batch] = loader_of(source)
    assert batch["name"] == ["a", "bcd", "efghi"]
    assert all(type(name) is str for name in batch["name"])
    assert list(loader_of(columns[:1])) == [["a", "bcd"]], "also without an array of numbers"


def test_a_list_of_arrays_is_a_list_of_columns_even_if_there_are_as_many_rows():
    [batch] = loader_of([[np.arange(4).reshape(2, 2), np.arange(2)]], batch_size=2)
    assert batch[0].shape == (2, 2)
    assert batch[1].tolist() == [0, 1]
    [batch] = loader_of([(np.zeros((2, 3)), np.ones((2, 3)))], batch_size=2)
    assert [column.mean() for column in batch] == [0, 1]


def test_one_object_for_each_row_is_a_column_whatever_the_objects_are():
    targets = [{"boxes": np.zeros((n, 4))} for n in (1, 2, 3)]
    words = [["a"], ["b", "c"], ["d"]]
    [batch] = loader_of([(words, targets, np.zeros((3, 2)))], batch_size=3)
    assert batch[:2] == (words, targets)
    assert all(row is target for row, target in zip(batch[1], targets, strict=True))


def test_a_nest_of_lists_whose_number_is_not_that_of_the_rows_is_a_nest():
    pairs = [("a", "b", "c"), ("d", "e", "f")]
    [batch] = loader_of([{"pairs": pairs, "x": np.arange(3)}], batch_size=3)
    assert batch["pairs"] == [["a", "b", "c"], ["d", "e", "f"]]


@pytest.mark.parametrize("rows", [[[1, 2], [3, 4]], (("a", "b"), ("c", "d")), [{"k": [1, 2]}] * 2])
def test_what_may_be_rows_or_columns_is_refused(rows):
    with pytest.raises(pyecho.ConfigError, match=r"item\['n'\]: .* may be a column of 2 rows, or"):
        next(iter(loader_of([{"x": np.arange(2), "n": rows}])))


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("labels", [1, np.zeros(3)])
def test_a_list_of_examples_is_no_batch(kind, labels):
    examples = kind({"x": np.zeros(3), "y": labels} for _ in range(4))
    with pytest.raises(pyecho.ConfigError, match=r"may be 4 examples; yield examples one by one"):
        next(iter(loader_of([examples])))


def test_lists_of_another_length_than_the_rows_are_named():
    with pytest.raises(pyecho.ConfigError, match=r"item\['n'\]: .* list of 2 into 3 rows"):
        next(iter(loader_of([{"x": np.arange(3), "n": [1, 2]}])))


def test_empty_batches_are_passed_over():
    source = [np.arange(0), np.arange(3), np.arange(0), np.arange(3, 5)]
    assert rows_of(loader_of(source)).tolist() == [0, 1, 2, 3, 4]


def test_batches_larger_than_pool_and_prefetch_go_through():
    source = [np.arange(10_000), np.arange(10_000, 20_000)]
    emitted = rows_of(loader_of(source, factor=2, shuffle_buffer=7, prefetch=1, threads=2))
    assert np.bincount(emitted).tolist() == [2] * 20_000


def test_batches_of_other_layouts_are_split():
    source = [np.asfortranarray(np.arange(12).reshape(4, 3)), np.arange(24).reshape(4, 6)[:, ::2]]
    [batch] = loader_of(source, batch_size=8)
    assert np.array_equal(batch, np.concatenate(source))


def test_leaves_of_unequal_length_are_named():
    with pytest.raises(pyecho.SpecMismatch, match=r"item\['y'\]: has 2 rows, but.*have 3"):
        list(loader_of([{"x": np.arange(3), "y": np.arange(2)}]))


def test_a_later_batch_with_other_rows_is_an_error_and_nothing_before_it_is_lost():
    batches = iter(loader_of([np.zeros((3, 2)), np.zeros((3, 4))], factor=2, batch_size=4))
    assert [len(next(batches)) for _ in range(2)] == [4, 2]
    with pytest.raises(pyecho.SpecMismatch, match=r"shape \(2,\).*\(3, 4\)"):
        next(batches)


@pytest.mark.parametrize("item", [3, "text", {"a": "b"}, np.float32(3)])
def test_items_without_a_batch_axis_are_refused_with_a_remedy(item):
    with pytest.raises(pyecho.ConfigError, match=r"batch axis.*unbatch=False"):
        next(iter(loader_of([item])))


@pytest.mark.parametrize("item", [[1, 2], {"label": [1, 2], "text": ["a", "b"]}])
def test_columns_that_are_all_lists_are_to_be_made_arrays(item):
    with pytest.raises(pyecho.ConfigError, match=r"np\.asarray\(\)") as raised:
        next(iter(loader_of([item])))
    assert "unbatch=False" not in str(raised.value)


def test_a_number_beside_arrays_cannot_be_split():
    with pytest.raises(
        pyecho.ConfigError, match=r"cannot split a leaf of type int into rows.*batch axis"
    ):
        next(iter(loader_of([{"x": np.arange(3), "n": 5}])))


def test_rows_carry_numbers_of_their_own_in_info():
    source = np.split(np.arange(10), [3, 4])
    loader = loader_of(source, factor=2, shuffle_buffer=4, with_info=True)
    for batch, info in loader:
        assert batch.tolist() == info.source_index.tolist()
