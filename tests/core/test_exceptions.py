"""The exception types: what they derive from, so that callers catch what they expect."""

import pickle

import pytest

import pyecho
from pyecho import _core

BASES = {
    "ConfigError": ValueError,
    "SpecMismatch": ValueError,
    "Closed": Exception,
    "PutTimeout": TimeoutError,
    "BufferExhausted": MemoryError,
    "EchoMutated": RuntimeError,
}


@pytest.mark.parametrize("name", BASES)
def test_each_is_an_echo_error_and_the_builtin_of_its_kind(name):
    error = getattr(pyecho, name)
    assert issubclass(error, pyecho.EchoError)
    assert issubclass(error, BASES[name])


@pytest.mark.parametrize("name", ["EchoError", *BASES])
def test_each_lives_in_pyecho_and_says_what_it_means(name):
    error = getattr(pyecho, name)
    assert error is getattr(_core, name)
    assert (error.__module__, error.__name__) == ("pyecho", name)
    assert error.__doc__


@pytest.mark.parametrize("name", ["EchoError", *BASES])
def test_each_can_be_pickled_as_it_crosses_processes(name):
    error = pickle.loads(pickle.dumps(getattr(pyecho, name)("message")))
    assert type(error) is getattr(pyecho, name)
    assert error.args == ("message",)


def test_every_public_name_is_there():
    assert all(hasattr(pyecho, name) for name in pyecho.__all__)
    assert pyecho.__version__ == _core.build_info()["version"]
