"""The owner of an iteration hears of its end: finish() is called when it ends or is abandoned."""

import gc
import signal
import sys

import pytest

import pyecho


class Alarm(Exception):
    """What a signal handler raises, in the middle of whatever the main thread does."""


class Owner:
    def __init__(self, raises=()):
        self.calls = 0
        self.raises = list(raises)

    def finish(self):
        self.calls += 1
        if self.raises:
            raise self.raises.pop(0)


def iterate(owner, closed):
    buffer = pyecho.EchoBuffer(pyecho.Field((), int), batch_size=2)
    if closed:
        buffer.close()
    return buffer._iterate(owner)


@pytest.fixture
def unraisable(monkeypatch):
    caught = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hooked: caught.append(hooked.exc_value))
    return caught


def test_finish_is_called_once_at_the_end():
    owner = Owner()
    batches = iterate(owner, closed=True)
    assert list(batches) == []
    assert owner.calls == 1
    del batches
    assert owner.calls == 1


def test_finish_is_called_when_the_iterator_dies():
    owner = Owner()
    iterate(owner, closed=False)
    gc.collect()
    assert owner.calls == 1


@pytest.mark.parametrize("error", [Alarm(), KeyboardInterrupt()])
def test_a_signal_during_the_end_is_raised_and_finish_is_called_again(error):
    owner = Owner([error])
    batches = iterate(owner, closed=True)
    with pytest.raises(type(error)) as raised:
        next(batches)
    assert raised.value is error
    assert owner.calls == 2
    assert next(batches, "end") == "end"


def test_a_signal_during_the_death_is_reported_and_finish_is_called_again(unraisable):
    error = Alarm()
    owner = Owner([error])
    iterate(owner, closed=False)
    assert unraisable == [error]
    assert owner.calls == 2


def test_ctrl_c_during_the_death_comes_again():
    owner = Owner([KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        iterate(owner, closed=False)
        signal.raise_signal(signal.SIGCONT)  # a point where Python looks for signals
    assert owner.calls == 2


def test_a_second_error_does_not_hide_the_first(unraisable):
    first, second = Alarm(1), Alarm(2)
    batches = iterate(Owner([first, second]), closed=True)
    with pytest.raises(Alarm) as raised:
        next(batches)
    assert raised.value is first
    assert unraisable == [second]
