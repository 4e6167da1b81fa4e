"""unbatch=True: the source yields batches, which are split into examples.

The machine says which rows come out, and in which order.
"""

import numpy as np
import pytest

import pyecho


def loader_of(source, factor=1, batch_size=4, **arguments):
    arguments = {"shuffle_buffer": 0} | arguments
    return pyecho.EchoLoader(source, factor, batch_size=batch_size, unbatch=True, **arguments)


# ---------------------------------------------------------------- columns


@pytest.mark.parametrize(
    "columns",
    [
        [["a", "bcd"], ["efghi"]],
        [("a", "bcd"), ("efghi",)],
        [np.array(["a", "bcd"]), np.array(["efghi"])],
        [np.array(["a", "bcd"], object), np.array(["efghi"], object)],
        [np.array(["a", "bcd"], np.dtypes.StringDType()), ("efghi",)],
    ],
    ids=["list", "tuple", "fixed width", "object", "StringDType"],
)
def test_lists_and_arrays_of_strings_and_objects_are_columns(columns):
    source = [{"name": column, "x": np.zeros(len(column))} for column in columns]
    [batch] = loader_of(source)
    assert batch["name"] == ["a", "bcd", "efghi"]
    assert all(type(name) is str for name in batch["name"])


def test_columns_of_python_numbers_travel_as_objects():
    [batch] = loader_of([{"x": np.arange(3), "n": [0.5, 1.5, 2.5]}])
    assert batch["n"] == [0.5, 1.5, 2.5]


def test_column_is_one_object_for_each_row_whatever_the_objects_are():
    targets = [{"boxes": np.zeros((n, 4))} for n in (1, 2, 3)]
    words = [["a"], ["b", "c"], ["d"]]
    [batch] = loader_of([(words, targets, np.zeros((3, 2)))])
    assert batch[:2] == (words, targets)
    assert all(row is target for row, target in zip(batch[1], targets, strict=True))


def test_list_of_arrays_is_a_list_of_columns_even_if_there_are_as_many_rows():
    [batch] = loader_of([[np.arange(4).reshape(2, 2), np.arange(2)]])
    assert batch[0].shape == (2, 2)
    assert batch[1].tolist() == [0, 1]
    [batch] = loader_of([(np.zeros((2, 3)), np.ones((2, 3)))])
    assert [column.mean() for column in batch] == [0, 1]


def test_nest_of_lists_whose_number_is_not_that_of_the_rows_is_a_nest():
    pairs = [("a", "b", "c"), ("d", "e", "f")]
    [batch] = loader_of([{"pairs": pairs, "x": np.arange(3)}])
    assert batch["pairs"] == [["a", "b", "c"], ["d", "e", "f"]]


# ---------------------------------------------------------------- what cannot be split


TWO_ROWS = {"x": np.arange(2), "n": [[1, 2], [3, 4]]}
EXAMPLES = [{"x": np.zeros(3), "y": 1} for _ in range(4)]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (3, r"batch axis.*unbatch=False"),
        ({"a": "b"}, r"batch axis.*unbatch=False"),
        ([1, 2], r"batch axis.*np\.asarray\(\)"),
        ({"label": [1, 2], "text": ["a", "b"]}, r"batch axis.*np\.asarray\(\)"),
        ({"x": np.arange(3), "n": 5}, r"item\['n'\]: .*cannot split a leaf of type int into rows"),
        ({"x": np.arange(3), "n": [1, 2]}, r"item\['n'\]: .* list of 2 into 3 rows"),
        (TWO_ROWS, r"item\['n'\]: .* may be a column of 2 rows, or"),
        (TWO_ROWS | {"n": [{"k": [1, 2]}] * 2}, r"item\['n'\]: .* may be a column of 2 rows, or"),
        (EXAMPLES, "may be 4 examples; yield examples one by one"),
        (tuple(EXAMPLES), "may be 4 examples; yield examples one by one"),
    ],
)
def test_unbatch_refuses_items_that_are_no_batch_or_can_be_read_in_two_ways(item, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        next(iter(loader_of([item])))


def test_leaves_of_unequal_length_are_named():
    with pytest.raises(pyecho.SpecMismatch, match=r"item\['y'\]: has 2 rows, but.*have 3"):
        list(loader_of([{"x": np.arange(3), "y": np.arange(2)}]))


def test_frames_say_how_to_yield_their_columns():
    polars = pytest.importorskip("polars")
    frames = [polars.DataFrame({"x": [1, 2, 3]})] * 2
    with pytest.raises(pyecho.ConfigError, match="yield its columns as arrays"):
        next(iter(pyecho.EchoLoader(frames, 2, batch_size=2, unbatch=True)))
    columns = [{name: each[name].to_numpy() for name in each.columns} for each in frames]
    assert [batch["x"].tolist() for batch in loader_of(columns, batch_size=2)] == [
        [1, 2],
        [3, 1],
        [2, 3],
    ]
