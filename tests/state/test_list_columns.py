"""A run with lists as columns goes on, whatever the first batch read there looks like."""

import copy

import numpy as np
import pytest
from drivers import GoesOn, Iterated
from resuming import Consumer

import pyecho
from pyecho.state.loaded import digest

pytestmark = pytest.mark.slow


def cut(sizes, lengths, wrapped):
    """Batches with a column of arrays that differ in length, each `wrapped`."""
    left = iter(lengths)
    return [
        {"x": np.arange(size), "y": [wrapped(np.arange(next(left))) for _ in range(size)]}
        for size in sizes
    ]


LENGTHS = [5, 2, 7, 2, 2, 2, 2, 1, 3, 1, 2, 2]
SOURCES = {
    "arrays": cut([3, 2, 2, 1, 3, 1], LENGTHS, lambda array: array),
    "nests": cut([3, 2, 2, 1, 3, 1], LENGTHS, lambda array: {"z": array}),
    "an empty list": [{"x": np.arange(n), "y": []} for n in (3, 3, 2, 2)],
    "a nest first": [{"x": np.arange(n), "y": [np.arange(n)] * 2} for n in (3, 3, 2, 2, 1, 2)],
}


def loader_of(name, kind, **options):
    return pyecho.EchoLoader(
        kind(SOURCES[name]), batch_size=2, unbatch=True, shuffle_buffer=2, prefetch=1,
        with_info=True, **options,
    )  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize(("kind", "payload"), [(Iterated, True), (Iterated, False), (GoesOn, True)])
def test_load_state_dict_knows_which_lists_were_columns(name, kind, payload):
    def loader():
        return loader_of(name, kind, threads=stop % 2)

    stop = 0
    whole = Consumer(loader()).take_all(2)
    for stop in range(len(whole)):
        consumer = Consumer(loader())
        assert consumer.take(stop) == whole[:stop]
        for step in (0, 1, len(whole)):  # saved again before it is read again
            step = min(step, len(whole) - stop)
            consumer = consumer.moved_to(loader(), payload=payload)
            assert consumer.take(step) == whole[stop : stop + step]
            stop += step
        consumer.loader.close()


@pytest.mark.parametrize("lists", [[], [False], [True, True], [1], 3, {}])
def test_load_state_dict_refuses_lists_that_the_source_has_not(lists):
    batches = iter(loader := loader_of("arrays", Iterated, threads=0))
    next(batches)
    state = copy.deepcopy(loader.state_dict())
    assert state["lists"] == [True]
    state["lists"] = lists
    state["digest"] = digest(state)
    forged = loader_of("arrays", Iterated, threads=0)
    with pytest.raises(pyecho.CheckpointError):
        forged.load_state_dict(state)
        next(iter(forged))


def test_lists_that_may_be_columns_or_nests_are_refused_in_the_first_batch():
    source = Iterated(cut([2, 3], [2] * 5, lambda array: {"z": array}))
    with pytest.raises(pyecho.ConfigError, match="may be a column of 2 rows, or a nest"):
        next(iter(pyecho.EchoLoader(source, batch_size=2, unbatch=True)))
