"""Batches in memory of another allocator: `EchoBuffer(allocate=)`."""

import gc
import weakref

import numpy as np
import pytest
from scripts import run

import pyecho

ROWS = [np.full(100, number, np.int32) for number in range(40)]


def buffer(allocate, **arguments):
    made = pyecho.EchoBuffer(
        pyecho.Field(100, np.int32), batch_size=4, shuffle_buffer=40, allocate=allocate, **arguments
    )
    for row in ROWS:
        made.put(row)
    made.close()
    return made


@pytest.mark.parametrize("threads", [0, 2])
def test_batch_leaves_with_its_block_which_lives_as_long_as_its_arrays(threads):
    blocks = []

    def allocate(size_bytes):
        block = np.empty(size_bytes, np.uint8)
        blocks.append(weakref.ref(block))
        return block

    echo = buffer(allocate, factor=3, threads=threads, with_info=True, max_bytes=1 << 20)
    kept = list(echo)
    assert len({id(batch.base) for batch, _ in kept}) == 30
    for batch, info in kept:
        assert batch.base is info.use.base is info.source_index.base is not None
    values = np.concatenate([batch[:, 0] for batch, _ in kept])
    assert np.bincount(values).tolist() == [3] * 40
    assert echo.stats().outstanding_leases == 0
    echo.stop()
    del echo, kept, batch, info
    gc.collect()
    assert not any(block() is not None for block in blocks)


def test_allocate_changes_no_batch():
    own = [batch.tolist() for batch in buffer(None, factor=2, seed=3)]
    lent = [batch.tolist() for batch in buffer(lambda n: np.empty(n, np.uint8), factor=2, seed=3)]
    assert lent == own


def read_only(size_bytes):
    block = np.empty(size_bytes, np.uint8)
    block.flags.writeable = False
    return block


@pytest.mark.parametrize(
    "allocate",
    [
        bytes,
        lambda size_bytes: [0] * size_bytes,
        lambda size_bytes: np.empty(size_bytes - 1, np.uint8),
        lambda size_bytes: np.empty(size_bytes + 1, np.uint8)[1:],
        lambda size_bytes: np.empty(2 * size_bytes, np.uint8)[::2],
        read_only,
    ],
)
def test_allocate_must_return_a_block(allocate):
    with pytest.raises(pyecho.ConfigError, match="writable, contiguous block of"):
        buffer(allocate)


def test_error_of_the_allocator_is_raised_and_no_batch_is_lost():
    calls = []

    def allocate(size_bytes):
        calls.append(size_bytes)
        if len(calls) in (8, 9):
            raise OSError("no more")
        return np.empty(size_bytes, np.uint8)

    echo = buffer(allocate, factor=2, threads=0)
    emitted, errors = [], 0
    batches = iter(echo)
    while True:
        try:
            emitted.append(next(batches))
        except StopIteration:
            break
        except OSError:
            errors += 1
    assert errors == 2
    assert np.bincount(np.concatenate(emitted)[:, 0]).tolist() == [2] * 40


def test_buffer_that_native_code_keeps_may_be_released_after_the_end_of_the_interpreter():
    output = run("""
        import ctypes

        allocate = lambda size_bytes: np.empty(size_bytes, np.uint8)
        echo = pyecho.EchoBuffer(pyecho.Field(4, np.int32), batch_size=2, allocate=allocate)
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype = ctypes.c_void_p
        pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
        handle = ctypes.c_void_p(pointer_of(echo.capsule, b"pyecho.buffer.v1"))
        library = ctypes.CDLL(pyecho.get_library())
        assert library.pyecho_retain(handle) == 0
        release = ctypes.cast(library.pyecho_release, ctypes.c_void_p)
        ctypes.CDLL(None).__cxa_atexit(release, handle, None)  # runs after Py_Finalize()
        print("done")
        """)
    assert output == "done\n"
