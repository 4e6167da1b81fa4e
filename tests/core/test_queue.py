"""EchoQueue, the native stage of batch echoing."""

import contextlib
import itertools
import sys
import types

import pytest
import reference_model as model

import pyecho
from pyecho import _core
from pyecho.config import Config


def make(items=(), *, transform=None, shared=False, **options):
    """A queue that was fed, as a loader's."""
    queue = _core.EchoQueue(Config(**options), transform=transform, shared=shared)
    queue._read(iter([iter(items)]), by_consumer=True)
    return queue


def test_uses_come_as_the_plan_says():
    options = {"factor": 2.5, "seed": 3, "epoch": 1}
    [[*batches]] = model.iterations([8], capacity=4, known=False, **options)
    expected = [use.item for [use] in batches]
    assert list(make(range(8), shuffle_buffer=4, **options)) == expected


def test_threads_that_agree_on_an_order_fill_places_in_any():
    queue = _core.EchoQueue(Config(factor=2, prefetch=5))
    places = [queue.reserve() for _ in range(5)]
    queue.fill(places[3], "b")
    queue.abort(places[1])
    queue.end_here(places[2], False)
    queue.fill_error(places[4], KeyError("c"))
    queue.fill(places[0], "a")
    uses = iter(queue)
    assert [*uses] == ["a", "a"]
    assert not queue._at_end
    uses, emitted = iter(queue), []
    with pytest.raises(KeyError):
        emitted.extend(uses)
    assert emitted == ["b", "b"]
    assert queue._at_end
    assert [*uses] == []


@pytest.mark.parametrize("by_consumer", [False, True])
def test_passes_that_are_read_flow_into_iterations(by_consumer):
    queue = _core.EchoQueue(Config(factor=1, prefetch=9))
    queue._read(iter([iter("ab"), iter(""), iter("c")]), by_consumer=by_consumer)
    if not by_consumer:
        queue._feed()
    iterations = []
    while not queue._at_end:
        iterations.append("".join(queue))
    assert iterations == ["ab", "", "c"]


def fails_at(*calls):
    """A transform that fails at these of its calls."""
    numbers = itertools.count(1)

    def transform(item, index, use):
        if next(numbers) in calls:
            raise ZeroDivisionError
        return item, index, use

    return transform


def test_where_the_transform_fails_the_consumer_gets_the_error_and_then_the_use():
    uses = iter(make("ab", transform=fails_at(1, 4, 5)))
    emitted = []
    for _ in range(8):
        try:
            emitted.append(next(uses, "end"))
        except ZeroDivisionError:
            emitted.append("error")
    assert emitted[:4] == ["error", ("a", 0, 0), ("a", 0, 1), "error"]
    assert emitted[4:] == ["error", ("b", 1, 0), ("b", 1, 1), "end"]


@pytest.mark.parametrize("stop_within", [False, True])
def test_stop_lets_go_of_a_use_that_is_due_again(stop_within):
    item = types.SimpleNamespace()
    before = sys.getrefcount(item)

    def transform(item, index, use):
        if stop_within:
            queue.stop()
        raise ZeroDivisionError

    queue = _core.EchoQueue(Config(factor=1), transform=transform)
    queue.fill(queue.reserve(), item)
    uses = iter(queue)
    with contextlib.suppress(ZeroDivisionError):
        next(uses)
    queue.stop()
    assert sys.getrefcount(item) == before
    with pytest.raises(pyecho.Closed):
        next(uses)


def test_references_are_balanced():
    item = types.SimpleNamespace()
    before = sys.getrefcount(item)
    emitted = list(make([item] * 3, shuffle_buffer=3, factor=4))
    assert sys.getrefcount(item) == before + 12
    del emitted
    assert sys.getrefcount(item) == before
    queue = _core.EchoQueue(Config())
    queue.fill(queue.reserve(), item)
    assert sys.getrefcount(item) == before + 1
    queue.stop()
    assert sys.getrefcount(item) == before
