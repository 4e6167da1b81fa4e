"""Wrong arguments are refused at once; the error says what was given and what is needed."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import pyecho


@pytest.mark.parametrize(
    "factor",
    [0, 0.99, -1, math.nan, math.inf, -math.inf, "2", b"2", None, [2], 1j, 10**400],
    ids=lambda factor: str(factor)[:5],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda factor: pyecho.EchoLoader([1], factor),
        lambda factor: pyecho.EchoBuffer(pyecho.Field((), int), batch_size=1, factor=factor),
    ],
    ids=["loader", "buffer"],
)
def test_a_factor_is_a_finite_number_of_at_least_one(make, factor):
    with pytest.raises(pyecho.ConfigError, match=r"factor must be a .*number of at least 1.*got"):
        make(factor)


@pytest.mark.parametrize(
    "factor", [1, 1.0, 2.5, np.int32(3), np.float32(1.5), Fraction(5, 2), Decimal("1.5")]
)
def test_any_kind_of_number_is_a_factor(factor):
    assert len(list(pyecho.EchoLoader(range(2), factor, seed=1))) >= 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1.*got 0"),
        ({"batch_size": -3}, "batch_size must be at least 1.*got -3"),
        ({"batch_size": 2.0}, "batch_size must be an int, got 2.0"),
        ({"batch_size": "4"}, "batch_size must be an int, got '4'"),
        ({"batch_size": 2**40}, "batch_size must be at least 1 and at most"),
        ({"shuffle_buffer": -1}, "shuffle_buffer must be at least 0.*got -1"),
        ({"shuffle_buffer": 2.5}, "shuffle_buffer must be an int, got 2.5"),
        ({"shuffle_buffer": 2**31}, "shuffle_buffer must be at least 0 and at most"),
        (
            {"shuffle_buffer": 2**30, "factor": 4},
            "shuffle_buffer times factor must stay below .*got 1073741824",
        ),
        ({"prefetch": 0}, "prefetch must be at least 1.*got 0"),
        ({"prefetch": None}, "prefetch must be an int, got None"),
        ({"threads": 0}, "threads must be at least 1.*got 0"),
        ({"threads": 1.5}, "threads must be an int, got 1.5"),
        ({"seed": -1}, "seed must be at least 0.*got -1"),
        ({"seed": 2**64}, "seed must be at least 0 and at most"),
        ({"seed": None}, "seed must be an int, got None"),
        ({"max_bytes": -1}, "max_bytes must be at least 0.*got -1"),
        ({"max_bytes": "1G"}, "max_bytes must be an int, got '1G'"),
        (
            {"batch_size": 8, "shuffle_buffer": 7, "unique_in_batch": True},
            "unique_in_batch needs a pool of at least batch_size = 8.*shuffle_buffer = 7; raise",
        ),
    ],
)
def test_an_argument_out_of_bounds_is_named_with_its_bounds(arguments, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        pyecho.EchoLoader([1], **arguments)


@pytest.mark.parametrize("name", ["batch_size", "shuffle_buffer", "prefetch", "threads", "seed"])
def test_numpy_integers_are_integers(name):
    arguments = {"batch_size": 2, name: np.int16(2)}
    assert sum(len(batch) for batch in pyecho.EchoLoader(range(3), 2, **arguments)) == 6


@pytest.mark.parametrize("source", [3, None, 2.5, object(), len, pyecho.EchoStats()])
def test_a_source_that_is_not_iterable_is_refused(source):
    name = type(source).__name__
    with pytest.raises(pyecho.ConfigError, match=rf"source must be iterable.*got {name}"):
        pyecho.EchoLoader(source)


def test_only_source_and_factor_are_positional():
    with pytest.raises(TypeError):
        pyecho.EchoLoader([1], 2, 4)


def test_unknown_arguments_are_refused():
    with pytest.raises(TypeError, match="shufle_buffer"):
        pyecho.EchoLoader([1], shufle_buffer=3)


@pytest.mark.parametrize("source", [[], (), np.zeros((0, 3)), iter(()), {}.keys()])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_source_that_yields_nothing_says_so_and_why(source, batch_size):
    loader = pyecho.EchoLoader(source, batch_size=batch_size)
    reason = "read to its end" if iter(source) is source else "check its length"
    with pytest.raises(
        pyecho.EchoError, match=rf"{type(source).__name__}.*yielded nothing.*{reason}"
    ):
        iter(loader)


# ---------------------------------------------------------------- specs


@pytest.mark.parametrize("spec", [3, None, "float32", np.float32, {"x": np.float32}, [None]])
def test_a_spec_is_a_nest_of_fields(spec):
    with pytest.raises(pyecho.ConfigError, match=r"nest of pyecho\.Field.*spec_of"):
        pyecho.EchoBuffer(spec, batch_size=1)


@pytest.mark.parametrize("spec", [{}, [], (), {"a": []}])
def test_a_spec_has_leaves(spec):
    with pytest.raises(pyecho.ConfigError, match="at least one leaf"):
        pyecho.EchoBuffer(spec, batch_size=1)


@pytest.mark.parametrize("source", [[{}], [[]], [()]])
def test_examples_have_leaves(source):
    with pytest.raises(pyecho.ConfigError, match="at least one leaf"):
        iter(pyecho.EchoLoader(source, batch_size=1))


def test_a_shape_is_not_negative():
    with pytest.raises(pyecho.ConfigError, match="extents of at least 0"):
        pyecho.Field((3, -1), float)


@pytest.mark.parametrize(
    ("field", "shape"),
    [
        (pyecho.Field(3, float), (3,)),
        (pyecho.Field(np.int64(3), float), (3,)),
        (pyecho.Field((), float), ()),
        (pyecho.Field([2, np.int8(3)], float), (2, 3)),
    ],
)
def test_a_shape_is_an_int_or_several(field, shape):
    assert field.shape == shape


def test_fields_are_values():
    assert pyecho.Field(3, "f4") == pyecho.Field((3,), np.float32)
    assert hash(pyecho.Field(3, "f4")) == hash(pyecho.Field((3,), np.float32))
    assert pyecho.Field(3, "f4") != pyecho.Field(3, "f8")
    with pytest.raises(AttributeError):
        pyecho.Field(3, "f4").shape = (4,)


def test_spec_of_describes_an_example():
    spec = pyecho.spec_of({"x": np.zeros((2, 3), "f4"), "y": [1, 2.5, True, "s", None]})
    assert spec == {
        "x": pyecho.Field((2, 3), "f4"),
        "y": [pyecho.Field((), kind) for kind in (int, float, bool, object, object)],
    }


def test_sizes_beyond_the_address_space_are_an_error_not_a_crash():
    with pytest.raises((pyecho.ConfigError, MemoryError, ValueError)):
        pyecho.EchoBuffer(pyecho.Field((2**40, 2**20), float), batch_size=2**20)
