"""Padded rows of any shapes are what NumPy makes of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyecho._core import pad_rows

DTYPES = {"uint8": 255, "int16": -7, "float32": 0.5, "complex128": 1 - 2j, "bool": True}


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), max_size=6),
    st.integers(1, 3),
    st.sampled_from(sorted(DTYPES)),
)
def test_rows_lie_in_their_places_and_the_rest_has_the_value(shapes, axes, dtype):
    shapes = np.array(shapes, np.int64).reshape(-1, 3)[:, :axes]
    rows = [np.arange(shape.prod()).astype(dtype).reshape(shape) for shape in shapes]
    padded = np.empty((len(rows), *shapes.max(axis=0, initial=0)), dtype)
    elements = np.concatenate([np.empty(0, dtype), *(row.ravel() for row in rows)])
    pad_rows(padded, elements, shapes, np.array([DTYPES[dtype]], dtype))

    expected = np.full_like(padded, DTYPES[dtype])
    for place, row in zip(expected, rows, strict=True):
        place[tuple(map(slice, row.shape))] = row
    np.testing.assert_array_equal(padded, expected)


@pytest.mark.parametrize("shape", [[[3]], [[-1]], [[1], [1]], [[1, 1]], [[0]]], ids=str)
def test_rows_that_do_not_fit_are_refused(shape):
    with pytest.raises(ValueError, match="row"):
        pad_rows(np.empty((1, 2)), np.zeros(1), np.array(shape), np.zeros(1))
