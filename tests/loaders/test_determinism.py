"""The output is a function of source, arguments, seed and epoch; threads and timing do not show."""

import numpy as np
import pytest
from delays import dawdling
from rows import rows_of

import pyecho

ARGUMENTS = [
    pytest.param({"factor": 3, "shuffle_buffer": 64, "batch_size": 32}, id="shuffled"),
    pytest.param({"factor": 2.5, "shuffle_buffer": 64, "batch_size": 32}, id="fractional"),
    pytest.param({"factor": 4, "shuffle_buffer": 0, "batch_size": 7}, id="in order"),
    pytest.param(
        {"factor": 3, "shuffle_buffer": 40, "batch_size": 32, "unique_in_batch": True}, id="unique"
    ),
    pytest.param(
        {"factor": 2, "shuffle_buffer": 10, "batch_size": 50, "drop_last": True}, id="drop last"
    ),
]


def rows(count):
    return np.random.default_rng(0).integers(0, 2**63, (count, 37))


def bytes_of(batches):
    return [batch.tobytes() for batch in batches]


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("prefetch", [1, 4])
def test_any_number_of_threads_gives_the_same_bytes(arguments, threads, prefetch):
    source = rows(700)
    expected = bytes_of(pyecho.EchoLoader(source, threads=1, **arguments))
    loader = pyecho.EchoLoader(source, threads=threads, prefetch=prefetch, **arguments)
    assert bytes_of(loader) == expected


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("late", ["source", "consumer", "both"])
def test_delays_give_the_same_bytes(arguments, threads, late):
    source = rows(250)
    expected = bytes_of(pyecho.EchoLoader(source, threads=1, **arguments))
    given = dawdling(source, seed=1) if late != "consumer" else source
    batches = iter(pyecho.EchoLoader(given, threads=threads, **arguments))
    assert bytes_of(dawdling(batches, seed=2) if late != "source" else batches) == expected


@pytest.mark.parametrize("capacity", [0, 16])
@pytest.mark.parametrize("late", ["source", "consumer", "both"])
def test_delays_do_not_change_batch_echoing(capacity, late):
    expected = list(pyecho.EchoLoader(range(200), 2.5, shuffle_buffer=capacity))
    given = dawdling(range(200), seed=1) if late != "consumer" else range(200)
    batches = iter(pyecho.EchoLoader(given, 2.5, shuffle_buffer=capacity))
    assert list(dawdling(batches, seed=2) if late != "source" else batches) == expected


def test_another_seed_gives_another_order():
    orders = {
        tuple(pyecho.EchoLoader(range(50), 2, shuffle_buffer=20, seed=seed)) for seed in range(10)
    }
    assert len(orders) == 10


@pytest.mark.parametrize("kind", ["list", "generator", "array", "batches"])
def test_the_form_of_the_source_does_not_matter(kind):
    source = rows(100)
    given = {
        "list": list(source),
        "generator": (row for row in source),
        "array": source,
        "batches": [source[start : start + 9] for start in range(0, 100, 9)],
    }[kind]
    arguments = {"factor": 3, "shuffle_buffer": 20, "batch_size": 8, "seed": 5}
    expected = bytes_of(pyecho.EchoLoader(source, threads=1, **arguments))
    assert bytes_of(pyecho.EchoLoader(given, unbatch=kind == "batches", **arguments)) == expected


@pytest.mark.parametrize("batch_bytes", [64, 2**20])
def test_batch_size_leaves_the_order_of_uses_alone(batch_bytes):
    source = np.arange(300).repeat(batch_bytes // 64).reshape(300, -1)
    order = [
        rows_of(pyecho.EchoLoader(source, 2.5, shuffle_buffer=30, batch_size=size))[:, 0]
        for size in (1, 7, 64)
    ]
    assert np.array_equal(order[0], order[1])
    assert np.array_equal(order[0], order[2])
