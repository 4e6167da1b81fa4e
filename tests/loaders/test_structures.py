"""Example echoing keeps the structure of examples and adds a batch axis to every leaf."""

from collections import namedtuple

import numpy as np
import pytest

import pyecho

Pair = namedtuple("Pair", ["left", "right"])


def first_batch(source, size=2, **arguments):
    return next(iter(pyecho.EchoLoader(source, 1, batch_size=size, **arguments)))


def test_a_bare_array_becomes_an_array():
    batch = first_batch([np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)])
    assert batch.shape == (2, 2, 3)
    assert batch.dtype == np.float32
    assert batch[1].min() == 1


def test_dicts_keep_keys_and_their_order():
    batch = first_batch([{"b": 1, "a": np.zeros(3), 5: 2.5}] * 2)
    assert type(batch) is dict
    assert list(batch) == ["b", "a", 5]
    assert batch["b"].tolist() == [1, 1]
    assert batch["a"].shape == (2, 3)
    assert batch[5].tolist() == [2.5, 2.5]


def test_deep_nests():
    item = {"a": [Pair(1, {"b": (np.zeros(1), [2.0])})], "c": ((((7,),),),)}
    batch = first_batch([item] * 3, size=3)
    assert batch["a"][0].right["b"][1][0].tolist() == [2.0] * 3
    assert batch["c"][0][0][0][0].tolist() == [7] * 3


def test_empty_nests_beside_leaves():
    batch = first_batch([{"a": 1, "none": [], "also": {}, "too": ()}] * 2)
    assert (batch["none"], batch["also"], batch["too"]) == ([], {}, ())


def test_many_leaves():
    batch = first_batch([{number: np.full(number, number) for number in range(50)}] * 2)
    assert all(batch[number].tolist() == [[number] * number] * 2 for number in range(50))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, np.bool_),
        (3, np.int64),
        (2.5, np.float64),
        (1 + 2j, np.complex128),
        (np.float32(1.5), np.float32),
        (np.uint8(200), np.uint8),
        (np.datetime64("2026-01-02", "s"), np.dtype("datetime64[s]")),
        (np.timedelta64(5, "ms"), np.dtype("timedelta64[ms]")),
    ],
)
def test_numbers_become_arrays_of_their_dtype(value, dtype):
    batch = first_batch([value, value])
    assert batch.dtype == dtype
    assert batch.shape == (2,)
    assert batch[1] == value


def test_whole_numbers_are_fine_where_floats_were_first():
    assert first_batch([0.5, 2]).tolist() == [0.5, 2.0]


@pytest.mark.parametrize("value", ["text", b"bytes", None, {1}, range(2), np.str_("s")])
def test_other_leaves_travel_by_reference_and_arrive_as_a_list(value):
    source = [{"x": 1, "it": value}] * 2
    batch = first_batch(source)
    assert type(batch["it"]) is list
    assert all(it is value for it in batch["it"])


def test_references_stay_with_their_rows_through_the_shuffle():
    source = [{"x": np.full(2, item), "name": f"n{item}", "o": [f"o{item}"]} for item in range(40)]
    count = 0
    for batch in pyecho.EchoLoader(source, 3, batch_size=7, shuffle_buffer=15, threads=3):
        names = [f"n{item}" for item in batch["x"][:, 0]]
        assert batch["name"] == names
        assert batch["o"][0] == [name.replace("n", "o") for name in names]
        count += len(names)
    assert count == 120


def test_examples_of_references_alone():
    assert list(pyecho.EchoLoader(["a", "b", "c"], 2, batch_size=4)) == [list("aabb"), list("cc")]


def test_zero_dimensional_arrays():
    batch = first_batch([np.array(3.5), np.array(4.5)])
    assert batch.tolist() == [3.5, 4.5]


def test_zero_size_arrays():
    batch = first_batch([{"x": np.zeros((0, 4)), "y": 1}] * 2)
    assert batch["x"].shape == (2, 0, 4)
    assert first_batch([np.zeros(0)] * 2).shape == (2, 0)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24).reshape(4, 6)[::2, ::-1],
        np.arange(24).reshape(4, 6).T,
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.broadcast_to(np.float32(3), (3, 4)),
        np.arange(10)[3:7],
    ],
    ids=["strided", "transposed", "fortran", "broadcast", "offset"],
)
def test_arrays_of_any_layout(array):
    batch = first_batch([array] * 2)
    assert np.array_equal(batch, np.stack([array] * 2))
    assert batch.flags.c_contiguous


def test_unaligned_arrays():
    array = np.frombuffer(bytearray(range(25)), np.uint8)[1:].view(np.float64)
    assert np.array_equal(first_batch([array] * 2), np.stack([array] * 2))


def test_leaves_are_aligned_in_the_batch():
    batch = first_batch(
        [{"a": np.uint8(1), "b": np.ones(3), "c": np.ones(2, np.longdouble)}] * 3, 3
    )
    assert all(leaf.flags.aligned and leaf.ctypes.data % 64 == 0 for leaf in batch.values())


def test_batches_are_private_and_writable():
    source = [np.arange(4) for _ in range(6)]
    for batch in pyecho.EchoLoader(source, 3, batch_size=4, shuffle_buffer=3):
        assert batch.tolist() == [[0, 1, 2, 3]] * len(batch)
        batch += 100
    assert all(row.tolist() == [0, 1, 2, 3] for row in source)


def test_with_info_wraps_any_structure():
    batch, info = first_batch([{"a": "x"}, {"a": "y"}], with_info=True)
    assert batch == {"a": ["x", "y"]}
    assert type(info) is pyecho.EchoInfo
    assert info.source_index.tolist() == [0, 1]


def test_the_last_batch_may_be_short():
    sizes = [len(batch) for batch in pyecho.EchoLoader(np.arange(5), 3, batch_size=4)]
    assert sizes == [4, 4, 4, 3]
