"""Repeats, puts, hand-overs and whole pipelines, each beside its limit."""

import pytest

from pyecho.bench import hand_over, pipeline, put, repeat


def test_repeat(measured, rounds):
    assert measured("Batch echoing", lambda progress: repeat.measure(rounds, progress))


def test_shuffled_repeat_at_every_capacity(measured, rounds):
    """The cost of a draw must not grow with the pool; what grows is what the caches miss."""
    assert measured(
        "Batch echoing: capacity", lambda progress: repeat.measure_capacities(rounds, progress)
    )


def test_put(measured, rounds):
    assert measured("Put", lambda progress: put.measure(rounds, progress))


def test_hand_over(measured, rounds):
    assert measured("Hand-over", lambda progress: hand_over.measure(rounds, progress))


@pytest.mark.parametrize("factor", [1, 2, 3, 5, 8])
def test_pipeline(measured, rounds, factor):
    assert measured(
        "Eq. 1 (t_up = 5 ms, t_down = 1 ms)",
        lambda progress: pipeline.measure((rounds + 1) // 2, progress, [factor], 200),
    )
