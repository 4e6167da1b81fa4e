"""A loader that goes on from a state yields what it would have yielded without, bit for bit."""

import contextlib
import copy
import itertools
import pickle
import warnings

import numpy as np
import pytest
from drivers import Iterated
from resuming import (
    Consumer,
    Indexed,
    StaysAtItsEnd,
    loader_of,
)

import pyecho

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the source .* yielded nothing"),
    pytest.mark.filterwarnings("ignore:the .* items of the source, used"),
]


@pytest.mark.parametrize("batch_size", [None, 5])
def test_source_with_indices_is_read_again_only_where_items_are_needed(batch_size):
    options = {"factor": 2, "batch_size": batch_size, "shuffle_buffer": 10, "threads": 0}
    consumer = Consumer(loader_of("indexed", 1000, **options))
    consumer.take(300)
    whole = consumer.loader.state_dict()
    small = consumer.loader.state_dict(payload=False)
    rest = consumer.take(30)
    for state, most in ((whole, 100), (small, 110)):
        source = Indexed(1000)
        loader = pyecho.EchoLoader(source, with_info=True, **options)
        loader.load_state_dict(state)
        assert Consumer(loader).take(30) == rest
        assert source.reads <= most + 30
    source = Indexed(1000)
    loader = pyecho.EchoLoader(source, with_info=True, **options)
    loader.skip_first_batches(300)
    assert Consumer(loader).take(30) == rest
    assert source.reads <= 140


@pytest.mark.parametrize("options", [{"steps_per_epoch": 100}, {"epochs": 400_000}])
@pytest.mark.parametrize("payload", [True, False])
def test_state_costs_what_was_read_and_not_what_may_follow(options, payload):
    def make():
        return pyecho.EchoLoader(
            np.arange(100_001), 2, batch_size=10, shuffle_buffer=50, threads=0, **options
        )

    loader, resumed, skipped = make(), make(), make()
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    resumed.load_state_dict(loader.state_dict(payload=payload))
    skipped.skip_first_batches(3)
    expected = next(batches).tolist()
    assert next(iter(resumed)).tolist() == expected
    assert next(iter(skipped)).tolist() == expected


def test_iterator_that_was_read_from_cannot_go_back():
    consumer = Consumer(loader_of("one shot", 20, factor=2, batch_size=4))
    consumer.take(2)
    with pytest.raises(pyecho.CheckpointError, match="cannot go back"):
        consumer.loader.load_state_dict(consumer.loader.state_dict())


@pytest.mark.parametrize("options", [{"steps_per_epoch": 4}, {"epochs": 3}], ids=str)
def test_state_at_the_end_of_a_pass_goes_on_with_the_next_one(options):
    def loader():
        return pyecho.EchoLoader(StaysAtItsEnd(2), 1, threads=0, with_info=True, **options)

    whole = Consumer(loader()).take_all(2)
    for stop in range(len(whole)):
        consumer = Consumer(loader())
        taken = consumer.take(stop)
        assert taken + consumer.moved_to(loader()).take(len(whole) - stop) == whole, stop


def test_state_that_must_be_told_something_is_not_asked_for():
    class Told(list):  # as MosaicML's StreamingDataset, which counts on its user
        def __iter__(self):
            return super().__iter__()

        def state_dict(self, taken):
            raise AssertionError

        def load_state_dict(self, state):
            raise AssertionError

    def loader():
        return pyecho.EchoLoader(Told(range(10)), 2, shuffle_buffer=3)

    whole, first = list(loader()), loader()
    batches = iter(first)
    taken = [next(batches) for _ in range(7)]
    second = loader()
    second.load_state_dict(first.state_dict())
    assert taken + list(second) == whole


def test_empty_rest_of_an_epoch_is_no_empty_source():
    loader = pyecho.EchoLoader(StaysAtItsEnd(3), 2)
    batches = iter(loader)
    state = [next(batches) for _ in range(6)] and loader.state_dict()
    resumed = pyecho.EchoLoader(StaysAtItsEnd(3), 2)
    resumed.load_state_dict(state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [len(list(resumed)) for _ in range(3)] == [0, 6, 6]
    assert resumed.state_dict()["epoch"] == 3


def through_a_file(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("way", [copy.copy, through_a_file])
def test_copy_has_the_position_of_its_own_in_iterators_with_a_state(way):
    consumer = Consumer(loader_of("stateful iterators", 20, factor=2, batch_size=4))
    consumer.take(3)
    loader = loader_of("stateful iterators", 20, factor=2, batch_size=4)
    loader.load_state_dict(consumer.loader.state_dict())
    first = Consumer(loader)
    rest = first.take(4)
    loader.load_state_dict(consumer.loader.state_dict())
    other = Consumer(way(loader))
    assert other.take(2) == rest[:2]
    assert first.loader.state_dict()["source"] == consumer.loader.state_dict()["source"]
    assert Consumer(loader).take(4) == rest
    assert other.take(2) == rest[2:]


@pytest.mark.parametrize("options", [{}, {"batch_size": 4, "unbatch": True}])
@pytest.mark.parametrize("payload", [True, False])
def test_states_of_a_run_fit_where_the_run_has_fitted(options, payload):
    ends = [0, 1, 30, 60, 62, 90, 91]  # the first batch is the smallest
    batches = [{"x": np.zeros((end - begin, 300))} for begin, end in itertools.pairwise(ends)]
    options = {"shuffle_buffer": 3, "prefetch": 2, "epochs": 2, **options}

    def rows(loader, count=None):
        return [len(batch["x"]) for batch in itertools.islice(loader, count)]

    def make(most):
        return pyecho.EchoLoader(Iterated(batches), 2, max_bytes=most, **options)

    def fits(most):
        with contextlib.suppress(pyecho.ConfigError):
            return bool(rows(make(most)))

    least = next(filter(fits, range(0, 2**20, 1000)))
    whole = rows(make(least))
    for stop in range(len(whole)):
        loader, other = make(least), make(least)
        assert rows(loader, stop) == whole[:stop]
        other.load_state_dict(loader.state_dict(payload=payload))
        assert rows(other) == whole[stop:]


def test_skip_first_batches_refuses_what_cannot_be_skipped():
    loader = loader_of("indexed", 100, factor=2, batch_size=10)
    with pytest.raises(pyecho.ConfigError, match="at most 20"):
        loader.skip_first_batches(21)
    batches = iter(loader)
    next(batches)
    with pytest.raises(pyecho.EchoError, match="between two iterations"):
        loader.skip_first_batches(1)
    for form, factor in [("stateful", 2), ("iterated", 2), ("list", pyecho.Adaptive(2))]:
        with pytest.raises(pyecho.EchoError, match="use state_dict"):
            loader_of(form, 100, factor=factor, batch_size=10).skip_first_batches(1)
