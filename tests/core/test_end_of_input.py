"""close, fail and stop: three ways for a buffer or queue to end."""

import contextlib
import threading

import numpy as np
import pytest

import pyecho
from pyecho import _core


def make_buffer():
    return pyecho.EchoBuffer(pyecho.Field((), int), batch_size=2, factor=2, capacity=2)


class Queue:
    """An EchoQueue under the names of an EchoBuffer."""

    def __init__(self):
        self.queue = _core.EchoQueue(
            capacity=2, factor=2.0, seed=0, epoch=0, prefetch=2, transform=None
        )
        self.close, self.fail, self.stop = self.queue.close, self.queue.fail, self.queue.stop

    def put(self, item):
        self.queue.put(item, None)

    def __iter__(self):
        return self.queue._iterate(None)


stages = pytest.mark.parametrize("make", [make_buffer, Queue], ids=["buffer", "queue"])


def values(emitted):
    return sorted(np.concatenate([np.atleast_1d(part).copy() for part in emitted]).tolist())


@stages
def test_close_drains_and_ends(make):
    stage = make()
    for number in range(3):
        stage.put(number)
    stage.close()
    stage.close()
    assert values(stage) == [0, 0, 1, 1, 2, 2]


@stages
def test_close_of_an_empty_stage_ends_at_once(make):
    stage = make()
    stage.close()
    assert list(stage) == []


@stages
def test_put_after_close_is_refused(make):
    stage = make()
    stage.close()
    with pytest.raises(pyecho.Closed, match="is closed and takes no more; make a new one"):
        stage.put(1)


@stages
def test_fail_drains_and_then_raises_the_same_object(make):
    stage, error = make(), KeyError("lost")
    stage.put(1)
    stage.fail(error)
    emitted = []
    with pytest.raises(KeyError) as raised:  # noqa: PT012
        for part in stage:
            emitted.append(np.copy(part))
    assert raised.value is error
    assert values(emitted) == [1, 1]


@stages
def test_the_first_failure_counts(make):
    stage, first = make(), KeyError("first")
    stage.fail(first)
    stage.fail(KeyError("second"))
    with pytest.raises(KeyError) as raised:
        next(iter(stage))
    assert raised.value is first


@stages
def test_a_failure_is_raised_once(make):
    stage = make()
    stage.fail(KeyError("once"))
    parts = iter(stage)
    with pytest.raises(KeyError):
        next(parts)
    assert next(parts, "end") == "end"


@stages
def test_stop_abandons_everything(make):
    stage = make()
    stage.put(1)
    stage.stop()
    stage.stop()
    with pytest.raises(pyecho.Closed):
        stage.put(2)
    with pytest.raises(pyecho.Closed):
        next(iter(stage))


@stages
@pytest.mark.parametrize("end", ["close", "stop"])
def test_ending_wakes_blocked_producers_and_consumers(make, end):
    blocked, starved = make(), make()
    outcomes = []

    def produce():
        try:
            while True:
                blocked.put(1)
        except pyecho.Closed:
            outcomes.append("producer")

    def consume():
        with contextlib.suppress(pyecho.Closed):
            list(starved)
        outcomes.append("consumer")

    threads = [threading.Thread(target=produce) for _ in range(2)]
    threads += [threading.Thread(target=consume)]
    for thread in threads:
        thread.start()
    getattr(blocked, end)()
    getattr(starved, end)()
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes) == ["consumer", "producer", "producer"]
    blocked.stop()


@stages
def test_an_iterator_that_ended_stays_ended(make):
    stage = make()
    stage.close()
    parts = iter(stage)
    assert [next(parts, "end") for _ in range(3)] == ["end"] * 3
    stage.stop()
    assert next(parts, "end") == "end"


@stages
def test_iterators_cannot_be_made_by_hand(make):
    with pytest.raises(TypeError):
        type(iter(make()))()


def test_leases_cannot_be_made_by_hand():
    with pytest.raises(TypeError):
        _core.Lease()


def test_views_of_a_failed_buffer_stay():
    buffer = make_buffer()
    buffer.put(3)
    buffer.fail(ValueError("late"))
    batches = iter(buffer)
    batch = next(batches)
    with pytest.raises(ValueError, match="late"):
        next(batches)
    assert batch.tolist() == [3, 3]


@pytest.mark.parametrize("error", [None, "text", ValueError])
def test_fail_wants_an_exception_object(error):
    buffer = make_buffer()
    with pytest.raises(TypeError):
        buffer.fail(error)
