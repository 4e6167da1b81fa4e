"""close, fail and stop: three ways for a buffer or queue to end."""

import contextlib
import signal
import sys
import threading

import numpy as np
import pytest

import pyecho
from pyecho import _core
from pyecho.config import Config


class Buffer(pyecho.EchoBuffer):
    def __init__(self):
        super().__init__(pyecho.Field((), int), batch_size=2, factor=2, capacity=2)


class Queue:
    """An EchoQueue under the names of an EchoBuffer."""

    def __init__(self):
        self.queue = _core.EchoQueue(Config(factor=2, shuffle_buffer=2))
        self.close, self.fail, self.stop = self.queue.close, self.queue.fail, self.queue.stop

    def put(self, item):
        self.queue.fill(self.queue.reserve(), item)

    def __iter__(self):
        return iter(self.queue)


stages = pytest.mark.parametrize("make", [Buffer, Queue])


def values(emitted):
    return sorted(np.concatenate([np.atleast_1d(part).copy() for part in emitted]).tolist())


@stages
def test_close_drains_and_ends(make):
    stage = make()
    for number in range(3):
        stage.put(number)
    stage.close()
    stage.close()
    with pytest.raises(pyecho.Closed, match="is closed and takes no more; make a new one"):
        stage.put(3)
    assert values(stage) == [0, 0, 1, 1, 2, 2]


@stages
@pytest.mark.parametrize("then", ["close", "stop"])
def test_an_iterator_that_ended_stays_ended(make, then):
    stage = make()
    stage.close()
    parts = iter(stage)
    assert list(parts) == []
    getattr(stage, then)()
    assert next(parts, "end") == "end"


@stages
def test_fail_drains_and_then_raises_the_first_failure_once(make):
    stage, error = make(), KeyError("lost")
    stage.put(1)
    stage.fail(error)
    stage.fail(KeyError("second"))
    parts, emitted = iter(stage), []
    with pytest.raises(KeyError) as raised:
        emitted.extend(map(np.copy, parts))
    assert raised.value is error
    assert values(emitted) == [1, 1]
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
@pytest.mark.parametrize("error", [None, "text", ValueError])
def test_fail_wants_an_exception_object(make, error):
    with pytest.raises(TypeError):
        make().fail(error)


@stages
def test_a_stop_iteration_does_not_end_the_loop_in_silence(make):
    stage = make()
    stage.fail(StopIteration(3))
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(stage)


@stages
def test_one_thread_at_a_time_iterates(make):
    stage, refused = make(), []
    parts = iter(stage)
    waiting = threading.Thread(target=lambda: list(parts))
    waiting.start()
    while not refused:
        try:
            next(iter(stage), None)
        except pyecho.EchoError as error:
            refused.append(str(error))
        else:  # this thread came first
            break
    stage.close()
    waiting.join(60)
    assert all("another thread" in message for message in refused)


@pytest.mark.parametrize("make", [lambda: type(iter(Buffer()))(), _core.Lease])
def test_iterators_and_leases_cannot_be_made_by_hand(make):
    with pytest.raises(TypeError):
        make()


# ---------------------------------------------------------------- owners of an iteration


class Alarm(Exception):
    """What a signal handler raises, in the middle of whatever the main thread does."""


class Owner:
    """Begins an iteration over some items; `raises` at the end of it."""

    def __init__(self, *raises, items=()):
        self.stage = _core.EchoQueue(Config(factor=1))
        for item in items:
            self.stage.fill(self.stage.reserve(), item)
        self.stage.close()
        self.begun, self.told, self.raises = 0, [], list(raises)

    def begin(self):
        self.begun += 1
        return self.stage

    def finish(self, completed):
        self.told.append(completed)
        if self.raises:
            raise self.raises.pop(0)


@pytest.fixture
def unraisable(monkeypatch):
    caught = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hooked: caught.append(hooked.exc_value))
    return caught


def test_begin_is_called_by_the_first_next_and_finish_once_at_the_end():
    owner = Owner()
    parts = _core.iterate(owner)
    assert owner.begun == 0
    assert [list(parts), list(parts)] == [[], []]
    del parts
    assert (owner.begun, owner.told) == (1, [True])


def test_an_iterator_that_never_began_tells_nothing():
    owner = Owner()
    _core.iterate(owner)
    assert (owner.begun, owner.told) == (0, [])


def test_an_iterator_that_dies_half_way_says_so():
    owner = Owner(items=[1, 2])
    assert next(_core.iterate(owner)) == 1
    assert owner.told == [False]


def test_an_iterator_that_a_later_one_has_ended_tells_nothing():
    owner = Owner(items=[1, 2])
    parts = _core.iterate(owner)
    next(parts)
    owner.stage._retire()
    with pytest.raises(pyecho.Closed, match="a later iter"):
        next(parts)
    del parts
    assert owner.told == []


@pytest.mark.parametrize("error", [Alarm(), KeyboardInterrupt()])
def test_a_signal_during_the_end_is_raised_and_finish_is_called_again(error):
    owner = Owner(error)
    parts = _core.iterate(owner)
    with pytest.raises(type(error)) as raised:
        next(parts)
    assert raised.value is error
    assert owner.told == [True, True]
    assert next(parts, "end") == "end"


def test_a_signal_during_the_death_is_reported_and_finish_is_called_again(unraisable):
    error = Alarm()
    owner = Owner(error, items=[1, 2])
    next(_core.iterate(owner))
    assert unraisable == [error]
    assert owner.told == [False, False]


def test_ctrl_c_during_the_death_comes_again():
    owner = Owner(KeyboardInterrupt(), items=[1, 2])
    with pytest.raises(KeyboardInterrupt):
        next(_core.iterate(owner))
        signal.raise_signal(signal.SIGCONT)  # a point where Python looks for signals
    assert owner.told == [False, False]


def test_a_second_error_does_not_hide_the_first(unraisable):
    first, second = Alarm(1), Alarm(2)
    with pytest.raises(Alarm) as raised:
        next(_core.iterate(Owner(first, second)))
    assert raised.value is first
    assert unraisable == [second]
