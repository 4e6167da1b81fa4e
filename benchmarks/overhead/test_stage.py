"""Repeats, puts, hand-overs and whole pipelines, each beside its limit."""

import itertools

import numpy as np
import pytest

import pyecho
from pyecho.bench import hand_over, pipeline, put, repeat
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample


def test_repeat(measured, rounds):
    assert measured("Batch echoing", lambda progress: repeat.measure(rounds, progress))


def test_shuffled_repeat_at_every_capacity(measured, rounds):
    """The cost of a draw must not grow with the pool, except for cache misses."""
    assert measured(
        "Batch echoing: capacity", lambda progress: repeat.measure_capacities(rounds, progress)
    )


def test_uses_of_free_items(measured, rounds):
    assert measured(
        "Batch echoing: echo factor", lambda progress: repeat.measure_factors(rounds, progress)
    )


def test_put(measured, rounds):
    assert measured("Put", lambda progress: put.measure(rounds, progress))


def test_hand_over(measured, rounds):
    assert measured("Hand-over", lambda progress: hand_over.measure(rounds, progress))


@pytest.mark.parametrize("factor", [1, 2, 5, 8])
def test_pipeline(measured, rounds, factor):
    """Long enough that filling and draining, which Eq. 1 ignores, are a small part."""
    assert measured(
        "Eq. 1 (t_up = 5 ms, t_down = 1 ms)",
        lambda progress: pipeline.measure((rounds + 1) // 2, progress, [factor], 800),
    )


@pytest.mark.parametrize("factor", [2, 8])
def test_pipeline_of_short_steps(measured, rounds, factor):
    assert measured(
        "Eq. 1 (t_up = 0.5 ms, t_down = 0.1 ms)",
        lambda progress: pipeline.measure((rounds + 1) // 2, progress, [factor], 4000, 1e-4),
    )


def test_memory_after_warm_up(measured):
    """Counts mappings while a buffer runs; tests/cpp/allocation_test.cpp also counts the heap."""

    def measure(_):
        row = np.zeros(3072, np.uint8)
        loader = pyecho.EchoLoader(itertools.repeat(row, 200_000), 4, batch_size=256)
        batches, added = iter(loader), []
        for _round in range(3):
            next(batches)
            before = loader.stats().host_allocations
            for _batch in range(1000):
                next(batches)
            added.append(float(loader.stats().host_allocations - before))
        loader.close()
        return [Row("blocks added in 1,000 batches", Sample(tuple(added)), "", target="0")]

    assert measured("Native memory", measure)
