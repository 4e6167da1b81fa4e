"""A loader that goes on from a state yields what it would have yielded without, bit for bit."""

import contextlib
import copy
import itertools
import pickle
import random
import warnings

import numpy as np
import pytest
from drivers import Iterated
from hypothesis import given
from hypothesis import strategies as st
from resuming import (
    CUT,
    ONE_SHOT,
    SOURCES,
    STATEFUL,
    Consumer,
    Indexed,
    Scenario,
    StaysAtItsEnd,
    loader_of,
)

import pyecho

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the source .* yielded nothing"),
    pytest.mark.filterwarnings("ignore:the .* items of the source, used"),
]


@given(seed=st.integers(0, 2**32))
def test_state_dict_goes_on_wherever_and_however_often_it_was_taken(seed):
    scenario, draw = Scenario(seed), random.Random(seed + 1)
    whole = Consumer(scenario.loader(draw)).take_all(scenario.iterations)
    consumer, taken = Consumer(scenario.loader(draw)), []
    for stop in sorted(draw.randint(0, len(whole)) for _ in range(draw.randint(1, 4))):
        taken += consumer.take(stop - len(taken))
        payload = scenario.form in STATEFUL or draw.random() < 0.5
        if draw.random() < 0.3:
            consumer.loader.state_dict(payload=payload)  # and go on here
        else:
            consumer = consumer.moved_to(scenario.loader(draw), payload=payload)
    taken += consumer.take(len(whole) - len(taken))
    assert taken == whole
    consumer.loader.close()


def test_state_can_be_loaded_in_the_middle_of_an_iteration_of_the_same_loader():
    consumer = Consumer(loader_of("iterated", 20, factor=3, batch_size=4))
    consumer.take(3)
    state = consumer.loader.state_dict()
    rest = consumer.take(7)
    consumer.loader.load_state_dict(state)
    with pytest.raises(pyecho.Closed):
        consumer.next()
    consumer.batches = None
    assert consumer.loader.state_dict() == state  # nothing has happened since
    assert consumer.take(7) == rest


def test_set_epoch_drops_the_state_unless_that_number_comes_next():
    consumer = Consumer(loader_of("list", 20, factor=2, batch_size=4))
    state = consumer.loader.state_dict() if consumer.take(3) else None
    rest = consumer.take(4)
    for epoch, expected in ((0, rest), (1, None)):
        loader = loader_of("list", 20, factor=2, batch_size=4)
        loader.load_state_dict(state)
        loader.set_epoch(epoch)
        found = Consumer(loader).take(4)
        assert (found == rest) == (expected is not None)


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


def test_items_may_come_back_from_a_drained_source():
    """The stages are made for an item like the others, also where none is left to be read."""
    for form in SOURCES:
        assume_batches = {"batch_size": 4, "shuffle_buffer": 100}
        whole = Consumer(loader_of(form, 9, factor=4, **assume_batches)).take_all(1)
        consumer = Consumer(loader_of(form, 9, factor=4, **assume_batches))
        consumer.take(5)
        resumed = loader_of(form, 9, factor=4, **assume_batches)
        assert consumer.moved_to(resumed).take(len(whole) - 5) == whole[5:], form


def test_iterator_that_was_read_from_cannot_go_back():
    consumer = Consumer(loader_of("one shot", 20, factor=2, batch_size=4))
    consumer.take(2)
    with pytest.raises(pyecho.CheckpointError, match="cannot go back"):
        consumer.loader.load_state_dict(consumer.loader.state_dict())


def test_loader_inside_a_loader_goes_on_too():
    def nested():
        inner = pyecho.EchoLoader(list(range(30)), 2, batch_size=3, seed=5)
        return pyecho.EchoLoader(inner, 2, batch_size=4, unbatch=True, with_info=True)

    whole = Consumer(nested()).take_all(2)
    for stop in (0, 7, 20, 30, 31, 50):
        consumer = Consumer(nested())
        consumer.take(stop)
        assert consumer.moved_to(nested()).take(len(whole) - stop) == whole[stop:]


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle_buffer": 5}, {"batch_size": 4}, {"batch_size": 4, "epochs": 2}],
    ids=str,
)
def test_source_whose_state_means_its_end_begins_the_next_epoch(options, threads):
    def loader():
        return pyecho.EchoLoader(
            StaysAtItsEnd(10), 2, with_info=True, threads=threads, prefetch=1, **options
        )

    whole = Consumer(loader()).take_all(4)
    for stop in range(len(whole) // 2 + 1):
        consumer = Consumer(loader())
        assert consumer.take(stop) == whole[:stop]
        for step in (1, 2, len(whole) - stop - 3):  # saved again before it is read again
            consumer = consumer.moved_to(loader())
            assert consumer.take(step) == whole[stop : stop + step], (stop, step)
            stop += step
        consumer.loader.close()


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


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, through_a_file])
def test_copies_of_a_loader_go_on_with_the_state_that_it_has_loaded(way):
    consumer = Consumer(loader_of("list", 20, factor=3, batch_size=4))
    consumer.take(3)
    loader = loader_of("list", 20, factor=3, batch_size=4)
    loader.load_state_dict(consumer.loader.state_dict())
    assert Consumer(way(loader)).take(30) == Consumer(loader).take(30) == consumer.take(30)


@given(seed=st.integers(0, 2**32))
def test_state_that_was_loaded_can_be_had_without_its_items(seed):
    scenario, draw = Scenario(seed), random.Random(seed + 1)
    consumer = Consumer(scenario.loader(draw))
    consumer.take(draw.randint(1, 20))
    state = through_a_file(consumer.loader.state_dict())
    loader = scenario.loader(draw)
    loader.load_state_dict(state)
    if state["position"] is None:
        assert loader.state_dict(payload=False) == state
        return
    if state["source"] is not None:
        with pytest.raises(pyecho.EchoError, match="payload=True"):
            loader.state_dict(payload=False)
        return
    small = loader.state_dict(payload=False)
    expected = consumer.loader.state_dict(payload=False)
    assert small.keys() == expected.keys()
    assert small["unspent"] is None
    for name in ("iterations", "delivered", "batches"):
        assert small["position"][name] == expected["position"][name]
    resumed = scenario.loader(draw)
    resumed.load_state_dict(small)
    count = 1 if scenario.form in ONE_SHOT else 20
    assert Consumer(resumed).take(count) == consumer.take(count)
    consumer.loader.close()
    resumed.close()


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("form", [*STATEFUL, "list", "indexed"])
@pytest.mark.parametrize("factor", [1, 2.5])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_states_after_the_last_item_of_a_source_begin_no_other_pass(form, factor, batch_size):
    """At each point: load, next, state, load, next, ... over three epochs."""
    pytest.importorskip("torchdata" if form == "data loader" else "numpy")
    if batch_size is None and form in CUT:
        return

    def loader():
        return loader_of(form, 5, factor=factor, batch_size=batch_size, prefetch=1)

    epochs = 1 if form in ONE_SHOT else 3
    whole = Consumer(loader()).take_all(epochs)
    for stop in range(len(whole)):
        consumer = Consumer(loader())
        taken = consumer.take(stop)
        for step in (1, 1, 0, 1, len(whole)):
            consumer = consumer.moved_to(loader())
            taken += consumer.take(min(step, len(whole) - len(taken)))
        assert taken == whole
        consumer.loader.close()


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
