"""put and put_batch of arrays of any layout, which are copied without a contiguous copy first."""

import sys
import threading
import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import pyecho


@st.composite
def layouts(draw):
    """An array with axes cropped, reversed, skipped, repeated and transposed."""
    small, large = st.integers(1, 6), st.integers(1, 70)
    shape = draw(st.one_of(st.lists(small, min_size=1, max_size=4), st.tuples(large, large)))
    item_bytes = draw(st.sampled_from([1, 2, 3, 4, 8, 12, 16, 17, 40]))
    size = int(np.prod(shape)) * item_bytes
    array = np.frombuffer(np.random.default_rng(size).bytes(size), f"V{item_bytes}").reshape(shape)
    steps = st.sampled_from(
        [slice(None), slice(1, None), slice(None, None, -1), slice(None, None, 2)]
    )
    array = array[tuple(draw(steps) for _ in shape)]
    if draw(st.booleans()):
        array = np.broadcast_to(array[..., None, :], (*array.shape[:-1], 3, array.shape[-1]))
    return array.transpose(draw(st.permutations(range(array.ndim))))


def emitted(spec, put):
    buffer = pyecho.EchoBuffer(spec, batch_size=100, factor=1)
    put(buffer)
    buffer.close()
    return [row for batch in buffer for row in batch]


@given(layouts())
def test_rows_arrive_in_order(array):
    row = emitted(pyecho.spec_of(array), lambda buffer: buffer.put(array))
    assert row[0].tobytes() == array.tobytes()
    field = pyecho.Field(array.shape[1:], array.dtype)
    rows = emitted(field, lambda buffer: buffer.put_batch(array))
    assert [row.tobytes() for row in rows] == [row.tobytes() for row in array]


def test_threads_run_while_a_large_strided_array_is_copied():
    array = np.ones((2048, 2048), np.float32).T
    buffer = pyecho.EchoBuffer(pyecho.spec_of(array), batch_size=1, factor=1, shuffle_buffer=2)
    laps, stop = [0], threading.Event()

    def run():
        while not stop.is_set():
            time.sleep(0.0005)
            laps[0] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # no thread takes the GIL, unless it is given up
    thread = threading.Thread(target=run)
    try:
        thread.start()
        before = laps[0]
        buffer.put(array)
        assert laps[0] > before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
        buffer.stop()
