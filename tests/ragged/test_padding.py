"""Padded rows of any shapes are what NumPy makes of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyecho import EchoLoader, Field

PADS = {"uint8": 255, "int16": -7, "float32": 0.5, "complex128": 1 - 2j, "bool": True}


@pytest.mark.filterwarnings("ignore:the consumer keeps batches")
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=9),
    st.integers(1, 3),
    st.sampled_from(sorted(PADS)),
    st.sampled_from([0, 2]),
)
def test_rows_lie_in_their_places_and_the_rest_has_the_value(shapes, axes, dtype, threads):
    pad = PADS[dtype]
    rows = [np.arange(np.prod(shape[:axes])).astype(dtype) for shape in shapes]
    rows = [row.reshape(shape[:axes]) for row, shape in zip(rows, shapes, strict=True)]
    field = Field((None,) * axes, dtype, max_bytes=16 * 4**axes, pad=pad)
    options = {"batch_size": 4, "fields": field, "shuffle_buffer": 1, "threads": threads}
    with EchoLoader(rows, 1, **options) as loader:
        for epoch in range(2):  # the second one in memory of the first
            batches = list(loader)
            assert len(batches) == -(-len(rows) // 4), epoch
            for number, batch in enumerate(batches):
                of_batch = rows[4 * number : 4 * number + 4]
                largest = np.max([row.shape for row in of_batch], axis=0)
                expected = np.full((len(of_batch), *largest), pad, dtype)
                for place, row in zip(expected, of_batch, strict=True):
                    place[tuple(map(slice, row.shape))] = row
                np.testing.assert_array_equal(batch.values, expected)
                lengths = [row.shape if axes > 1 else len(row) for row in of_batch]
                assert batch.lengths.tolist() == np.array(lengths).tolist()


def test_extents_of_different_items_that_make_too_many_bytes_are_refused():
    """2**64 + 1 of them, which wrap around to one."""
    items = [np.empty((274_177, 0), np.uint8), np.empty((0, 67_280_421_310_721), np.uint8)]
    field = Field((None, None), "uint8", max_bytes=1000, pad=0)
    with pytest.raises(MemoryError):
        list(EchoLoader(items, 1, batch_size=2, shuffle_buffer=0, fields=field))
