"""Example echoing keeps the structure of examples and adds a batch axis to every leaf.

Nests of every kind are in test_nests.py; here are the leaves.
"""

import numpy as np
import pytest
from drivers import drivers, loader_of

import pyecho


def batch_of(*examples, **arguments):
    source = list(examples)
    [batch] = pyecho.EchoLoader(source, 1, batch_size=len(source), shuffle_buffer=0, **arguments)
    return batch


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, np.bool_),
        (3, np.int64),
        (2.5, np.float64),
        (1 + 2j, np.complex128),
        (np.float32(1.5), np.float32),
        (np.array(7, np.int8), np.int8),
        (np.datetime64("2026-01-02", "s"), np.dtype("datetime64[s]")),
    ],
)
def test_numbers_become_arrays_of_their_dtype(value, dtype):
    batch = batch_of(value, value)
    assert (batch.dtype, batch.shape, batch[1]) == (dtype, (2,), value)


def test_whole_numbers_are_fine_where_floats_were_first():
    assert batch_of(0.5, 2).tolist() == [0.5, 2.0]


@pytest.mark.parametrize("value", ["text", b"bytes", None, {1}, range(2), np.str_("s")])
def test_other_leaves_travel_by_reference_and_arrive_as_a_list(value):
    batch = batch_of({"x": 1, "it": value}, {"x": 2, "it": value})
    assert type(batch["it"]) is list
    assert all(it is value for it in batch["it"])
    assert all(it is value for it in batch_of(value, value))


@drivers
def test_references_stay_with_their_rows_through_the_shuffle(driver):
    source = [{"x": np.full(2, n), "name": f"n{n}", "o": [f"o{n}"]} for n in range(40)]
    names = []
    for batch in loader_of(driver, source, 3, batch_size=7, shuffle_buffer=15):
        assert batch["name"] == [f"n{n}" for n in batch["x"][:, 0]]
        assert batch["o"][0] == [name.replace("n", "o") for name in batch["name"]]
        names += batch["name"]
    assert sorted(names) == sorted([example["name"] for example in source] * 3)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24).reshape(4, 6)[::2, ::-1],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.broadcast_to(np.float32(3), (3, 4)),
        np.frombuffer(bytearray(range(25)), np.uint8)[1:].view(np.float64),
        np.zeros((0, 4)),
        np.zeros(0),
    ],
    ids=["strided", "fortran", "broadcast", "unaligned", "no rows", "nothing"],
)
def test_arrays_of_any_layout(array):
    batch = batch_of(array, array)
    assert np.array_equal(batch, np.stack([array] * 2))
    assert batch.flags.c_contiguous


def test_many_leaves_each_aligned():
    dtypes = [np.uint8, float, np.longdouble, ">i2"]
    example = {number: np.full(number, number, dtypes[number % 4]) for number in range(50)}
    batch = batch_of(example, example, example)
    assert list(batch) == list(example)
    for number, leaf in batch.items():
        assert leaf.tolist() == [[number] * number] * 3
        assert leaf.flags.aligned
        assert leaf.ctypes.data % 64 == 0 or number == 0


@drivers
def test_batches_are_private_and_writable(driver):
    source = [np.arange(4) for _ in range(6)]
    for batch in loader_of(driver, source, 3, batch_size=4, shuffle_buffer=3):
        assert batch.tolist() == [[0, 1, 2, 3]] * len(batch)
        batch += 100
    assert all(row.tolist() == [0, 1, 2, 3] for row in source)


def test_info_wraps_any_structure():
    batch, info = batch_of({"a": "x"}, {"a": "y"}, with_info=True)
    assert batch == {"a": ["x", "y"]}
    assert type(info) is pyecho.EchoInfo
    assert (info.source_index.tolist(), info.use.tolist()) == ([0, 1], [0, 0])
