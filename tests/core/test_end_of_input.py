"""close, fail and stop: three ways for a buffer to end."""

import numpy as np
import pytest

import pyecho


def made():
    return pyecho.EchoBuffer(pyecho.Field((), int), batch_size=2, factor=2, shuffle_buffer=2)


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


def test_fail_wants_an_exception_and_a_stop_iteration_does_not_end_the_loop_in_silence():
    buffer = made()
    for error in (None, "text", ValueError):
        with pytest.raises(TypeError):
            buffer.fail(error)
    buffer.fail(StopIteration(3))
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(buffer)
