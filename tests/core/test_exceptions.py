"""The exception types: what they derive from, so that callers catch what they expect."""

import pickle

import numpy as np
import pytest

import pyecho

BASES = {
    "ConfigError": ValueError,
    "SpecMismatch": ValueError,
    "Closed": Exception,
    "PutTimeout": TimeoutError,
    "BufferExhausted": MemoryError,
    "EchoMutated": RuntimeError,
    "CudaError": RuntimeError,
}


@pytest.mark.parametrize("name", BASES)
def test_exceptions_are_echo_errors_and_builtins_of_their_kind_and_can_be_pickled(name):
    error = getattr(pyecho, name)
    assert issubclass(error, pyecho.EchoError)
    assert issubclass(error, BASES[name])
    assert (error.__module__, error.__name__) == ("pyecho", name)
    again = pickle.loads(pickle.dumps(error("message")))
    assert (type(again), again.args) == (error, ("message",))


def test_public_names_are_there():
    assert all(hasattr(pyecho, name) for name in pyecho.__all__)


class Early(pyecho.EchoBuffer):
    """Calls a method before there is a buffer."""

    def __init__(self, call):
        with pytest.raises(TypeError, match=r"call super\(\).__init__\(...\) before"):
            call(self)
        super().__init__(pyecho.Field((), np.int64), 1, batch_size=2)


@pytest.mark.parametrize(
    "call",
    [
        lambda buffer: buffer.put(1),
        lambda buffer: buffer.put_batch([1]),
        lambda buffer: buffer.reserve(),
        lambda buffer: buffer.close(),
        lambda buffer: buffer.fail(KeyError()),
        lambda buffer: buffer.stop(),
        lambda buffer: buffer.stats(),
        lambda buffer: buffer.state_dict(),
        lambda buffer: buffer.capsule,
        lambda buffer: next(iter(buffer)),
    ],
)
def test_methods_before_init_of_a_subclass_raise_and_the_buffer_works_after_it(call):
    buffer = Early(call)
    buffer.put(1)
    buffer.put(2)
    buffer.close()
    assert [batch.tolist() for batch in buffer] == [[1, 2]]
