"""Python has no memory for an object: MemoryError, and nothing is lost or kept too long."""

import gc
import weakref

import numpy as np
import pytest

import pyecho

capi = pytest.importorskip("_testcapi")


def batches_of(threads, with_info):
    spec = {"x": pyecho.Field((3,), np.int64), "y": pyecho.Field((), np.int64)}
    options = {"batch_size": 4, "factor": 2, "shuffle_buffer": 8, "slots_ahead": 64}
    buffer = pyecho.EchoBuffer(spec, threads=threads, with_info=with_info, **options)
    for number in range(24):
        buffer.put({"x": np.full(3, number), "y": number})
    buffer.close()
    return iter(buffer)


def rows_of(emission, with_info):
    batch = emission[0] if with_info else emission
    return batch["x"][:, 0].tolist()


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize("with_info", [False, True])
def test_next_that_finds_no_memory_loses_no_batch(threads, with_info):
    expected = [rows_of(each, with_info) for each in batches_of(threads, with_info)]
    failures = 0
    for number in range(40):  # of the allocation that fails
        batches = batches_of(threads, with_info)
        found, emission = [rows_of(next(batches), with_info)], None
        capi.set_nomemory(number, number + 1)
        try:
            emission = next(batches)
        except MemoryError:
            failures += 1
        finally:
            capi.remove_mem_hooks()
        if emission is not None:
            found.append(rows_of(emission, with_info))
        found += [rows_of(each, with_info) for each in batches]
        assert found == expected, number
    assert failures > 2


def test_put_batch_that_finds_no_memory_keeps_no_object_of_rows_that_it_gave_back():
    class Object:
        pass

    names = [f"o{number}" for number in range(24)]  # more than small tuples, which Python keeps
    spec = pyecho.spec_of({"x": 1, **{name: Object() for name in names}})
    failures = 0
    for number in range(60):  # of the allocation that fails
        buffer = pyecho.EchoBuffer(spec, 2, batch_size=4, shuffle_buffer=8, slots_ahead=64)
        batch = {"x": np.arange(16), **{name: [Object() for _ in range(16)] for name in names}}
        kept = [weakref.ref(each) for each in batch[names[0]]]
        capi.set_nomemory(number, number + 1)
        try:
            buffer.put_batch(batch)
        except MemoryError:
            failures += 1
            kept_by_slots = False
        else:
            kept_by_slots = True
        finally:
            capi.remove_mem_hooks()
        del batch
        gc.collect()
        assert [each() is not None for each in kept] == [kept_by_slots] * 16, number
    assert failures > 2
