"""Python numbers are written as NumPy would write them, and refused if they do not fit."""

import numpy as np
import pytest

import pyecho


def put_one(dtype, value):
    """Return the only element of the batch that one put makes."""
    buffer = pyecho.EchoBuffer(pyecho.Field((), dtype), batch_size=1, factor=1)
    buffer.put(value)
    buffer.close()
    (batch,) = buffer
    assert batch.dtype == np.dtype(dtype)
    return batch[0]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(
    ("kind", "value"),
    [("f8", -2.5), ("f8", 3), ("i8", -(2**63)), ("i8", 2**63 - 1), ("c16", 1.5 - 2j)],
)
def test_numbers_in_both_byte_orders(order, kind, value):
    assert put_one(order + kind, value) == value


@pytest.mark.parametrize("value", [True, False])
def test_bool(value):
    assert put_one("?", value) == value


@pytest.mark.parametrize(("dtype", "value"), [("i8", 2**63), ("i8", -(2**63) - 1), ("f8", 10**400)])
def test_int_that_does_not_fit_is_refused(dtype, value):
    with pytest.raises(pyecho.SpecMismatch, match="does not fit"):
        put_one(dtype, value)


def test_fields_may_have_one_axis_less_than_arrays():
    most = 63 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 31
    field = pyecho.Field((1,) * most, np.uint8)
    buffer = pyecho.EchoBuffer(field, batch_size=2, factor=2)
    buffer.put(np.ones(field.shape, np.uint8))
    buffer.close()
    assert next(iter(buffer)).shape == (2, *field.shape)
    buffer.stop()
    with pytest.raises(pyecho.ConfigError, match=f"{most} axes at most"):
        pyecho.EchoBuffer(pyecho.Field((1,) * (most + 1), np.uint8), batch_size=2)
