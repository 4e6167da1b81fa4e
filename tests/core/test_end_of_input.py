"""close, fail and stop: three ways for a buffer to end; and what the end of an iteration tells."""

import contextlib
import signal
import sys
import threading

import numpy as np
import pytest

import pyecho
from pyecho import _core
from pyecho.config import Config


def made():
    return pyecho.EchoBuffer(pyecho.Field((), int), batch_size=2, factor=2, capacity=2)


def values(batches):
    return sorted(np.concatenate([batch.copy() for batch in batches]).tolist())


def test_close_drains_and_what_has_ended_stays_ended():
    buffer = made()
    for number in range(3):
        buffer.put(number)
    buffer.close()
    buffer.close()
    with pytest.raises(pyecho.Closed, match="is closed and takes no more; make a new one"):
        buffer.put(3)
    batches = iter(buffer)
    assert values(batches) == [0, 0, 1, 1, 2, 2]
    buffer.stop()
    assert next(batches, "end") == "end"


def test_fail_drains_and_then_raises_the_first_failure_once():
    buffer, error = made(), KeyError("lost")
    buffer.put(1)
    buffer.fail(error)
    buffer.fail(KeyError("second"))
    batches, emitted = iter(buffer), []
    with pytest.raises(KeyError) as raised:
        emitted.extend(map(np.copy, batches))
    assert raised.value is error
    assert values(emitted) == [1, 1]
    assert next(batches, "end") == "end"


def test_stop_abandons_everything():
    buffer = made()
    buffer.put(1)
    buffer.stop()
    buffer.stop()
    with pytest.raises(pyecho.Closed):
        buffer.put(2)
    with pytest.raises(pyecho.Closed):
        next(iter(buffer))


@pytest.mark.parametrize("end", ["close", "stop"])
def test_ending_wakes_blocked_producers_and_consumers(end):
    full, empty = made(), made()
    outcomes = []

    def produce():
        try:
            while True:
                full.put(1)
        except pyecho.Closed:
            outcomes.append("producer")

    def consume():
        with contextlib.suppress(pyecho.Closed):
            list(empty)
        outcomes.append("consumer")

    threads = [threading.Thread(target=work) for work in (produce, produce, consume)]
    for thread in threads:
        thread.start()
    getattr(full, end)()
    getattr(empty, end)()
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes) == ["consumer", "producer", "producer"]
    full.stop()


def test_fail_wants_an_exception_and_a_stop_iteration_does_not_end_the_loop_in_silence():
    buffer = made()
    for error in (None, "text", ValueError):
        with pytest.raises(TypeError):
            buffer.fail(error)
    buffer.fail(StopIteration(3))
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(buffer)


# ---------------------------------------------------------------- owners of an iteration


class Alarm(Exception):
    """What a signal handler raises, in the middle of whatever the main thread does."""


class Owner:
    """Begins an iteration over some items; `raises` at the end of it."""

    def __init__(self, *raises, items=()):
        self.stage = _core.ObjectStage(Config(factor=1))
        for item in items:
            self.stage.fill(self.stage.reserve(), item)
        self.stage.close()
        self.begun, self.told, self.raises = 0, [], list(raises)

    def begin(self):
        self.begun += 1
        return self.stage, self.stage._generation

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
    ended, left, unasked = Owner(), Owner(items=[1, 2]), Owner()
    parts = _core.iterate(ended)
    assert ended.begun == 0
    assert [list(parts), list(parts)] == [[], []]
    del parts
    next(_core.iterate(left))
    _core.iterate(unasked)
    assert [owner.begun for owner in (ended, left, unasked)] == [1, 1, 0]
    assert [owner.told for owner in (ended, left, unasked)] == [[True], [False], []]


@pytest.mark.parametrize("error", [Alarm(), KeyboardInterrupt()])
def test_a_signal_during_the_end_is_raised_and_finish_is_called_again(error, unraisable):
    second = Alarm("must not hide the first")
    owner = Owner(error, second)
    parts = _core.iterate(owner)
    with pytest.raises(type(error)) as raised:
        next(parts)
    assert raised.value is error
    assert unraisable == [second]
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
