"""Batches that are added because the consumer keeps others, where no more memory can be pinned."""

import ctypes
import warnings

import numpy as np
import pytest

import pyecho

ROWS = [np.full(5000, number, np.uint8) for number in range(120)]


@pytest.fixture
def batches_of(standin):
    """Begins to iterate a loader; from then on nothing more can be pinned."""

    def begin(memory):
        pinned = pyecho.EchoLoader(ROWS, 2, batch_size=4, shuffle_buffer=0, memory=memory)
        batches = iter(pinned)
        kept = [next(batches)]
        standin.set_register_limit(ctypes.c_uint64(standin.registered_bytes()))
        return kept, batches

    with pytest.MonkeyPatch.context() as patch:  # as with a device
        patch.setattr("pyecho.buffer.pinning_for", pinning_for)
        yield begin
    standin.restore()


def pinning_for(memory, device):
    return pyecho._core.Pinning(device=0, required=memory == "pinned")


def test_batches_that_cannot_be_pinned_are_one_warning_and_none_is_lost(batches_of):
    kept, batches = batches_of("auto")
    warned = []
    while True:
        try:
            kept.append(next(batches))
        except Warning as warning:  # an error in these tests
            warned.append(warning)
        except StopIteration:
            break
    values = [int(row[0]) for batch in kept for row in batch]
    assert values == [number for number in range(120) for _ in range(2)]
    growth, pageable = warned
    assert isinstance(growth, ResourceWarning)
    assert isinstance(pageable, RuntimeWarning)
    assert "added stay in pageable memory" in str(pageable)
    assert "cuMemHostRegister failed" in str(pageable)


@pytest.mark.filterwarnings("ignore:the consumer keeps batches:ResourceWarning")
def test_memory_that_must_be_pinned_is_not_added_and_the_error_says_why(batches_of):
    kept, batches = batches_of("pinned")
    emitted = []
    with pytest.raises(
        pyecho.BufferExhausted, match=r"leases\), and none can be added: cuMemHost.*drop"
    ) as raised:
        kept.extend(batches)
    assert "max_bytes" not in str(raised.value)
    while kept:  # dropping one lets it go on, without loss
        emitted.append(int(kept.pop(0)[0, 0]))
        kept.extend(batch for batch in [next(batches, None)] if batch is not None)
    assert emitted == list(range(0, 120, 2))


def test_memory_that_could_not_be_pinned_at_first_is_no_second_warning(standin):
    standin.set_register_limit(0)
    with pytest.warns(RuntimeWarning, match="batches stay in pageable memory"):
        buffer = pyecho.EchoBuffer(pyecho.Field(3, np.uint8), batch_size=1, factor=60, device=0)
    buffer.put(np.zeros(3, np.uint8))
    buffer.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = list(buffer)
    assert len(kept) == 60
    assert [warning.category for warning in caught] == [ResourceWarning]
    buffer.stop()
    standin.restore()
