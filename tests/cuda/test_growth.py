"""Batches that are added because the consumer keeps others, where no more memory can be pinned."""

import ctypes
import threading
import warnings

import numpy as np
import pytest

import pyecho

WIDTH = 5000


@pytest.fixture
def buffer_of(standin):
    """Makes a buffer, with a producer; after it nothing more can be pinned."""
    buffers = []

    def make(memory, rows=120):
        buffer = pyecho.EchoBuffer(
            pyecho.Field(WIDTH, np.uint8), batch_size=4, factor=2, memory=memory, device=0
        )
        buffers.append(buffer)

        def produce():
            try:
                for number in range(rows):
                    buffer.put(np.full(WIDTH, number, np.uint8))
                buffer.close()
            except pyecho.Closed:
                pass

        standin.set_register_limit(ctypes.c_uint64(standin.registered_bytes()))
        producer = threading.Thread(target=produce, name="pyecho-producer")
        producer.start()
        return buffer

    yield make
    while buffers:
        buffers.pop().stop()
    standin.restore()


def values(batches):
    return [int(row[0]) for batch in batches for row in batch]


def test_a_batch_that_cannot_be_pinned_when_it_is_added_is_one_warning(buffer_of):
    buffer = buffer_of("auto")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = list(buffer)
    assert values(kept) == [number for number in range(120) for _ in range(2)]
    growth, pageable = caught
    assert growth.category is ResourceWarning
    assert pageable.category is RuntimeWarning
    assert "added stay in pageable memory" in str(pageable.message)
    assert "cuMemHostRegister failed" in str(pageable.message)
    assert pageable.filename == __file__, "it points at the consumer"


def test_where_that_warning_is_an_error_no_batch_is_lost(buffer_of):
    batches = iter(buffer_of("auto"))
    kept, warned = [], []
    while True:
        try:
            kept.append(next(batches))
        except Warning as warning:
            warned.append(type(warning))
        except StopIteration:
            break
    assert values(kept) == [number for number in range(120) for _ in range(2)]
    assert warned == [ResourceWarning, RuntimeWarning]


def test_memory_that_must_be_pinned_is_not_added_and_the_error_says_why(buffer_of):
    batches = iter(buffer_of("pinned"))
    kept, emitted = [], []
    with pytest.raises(
        pyecho.BufferExhausted,
        match=r"leases\), and none can be added: cuMemHost.*drop",
    ) as raised:
        kept.extend(batches)
    assert "max_bytes" not in str(raised.value)
    while kept:  # dropping one lets it go on, without loss
        emitted.append(int(kept[0][0, 0]))
        del kept[0]
        kept.extend(batch for batch in [next(batches, None)] if batch is not None)
    assert emitted == list(range(0, 120, 2))


def test_memory_that_could_not_be_pinned_at_first_is_no_second_warning(standin):
    standin.set_register_limit(0)
    with pytest.warns(RuntimeWarning, match="batches stay in pageable memory"):
        buffer = pyecho.EchoBuffer(pyecho.Field(3, np.uint8), batch_size=1, factor=60, device=0)
    buffer.put(np.zeros(3, np.uint8))
    buffer.close()
    with pytest.warns(ResourceWarning) as caught:
        kept = list(buffer)
    assert len(kept) == 60
    assert [warning.category for warning in caught] == [ResourceWarning]
    buffer.stop()
    standin.restore()
