"""The exception types: what they derive from, so that callers catch what they expect."""

import pickle

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
