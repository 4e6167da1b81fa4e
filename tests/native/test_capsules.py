"""EchoBuffer.capsule, and the files for native code."""

import ctypes
import gc
import threading
from pathlib import Path

import numpy as np
import pytest
from native import CLOSED, MISUSE, OK, Calls, Slot, handle_of

import pyecho


def rows(buffer):
    return np.array([int(x) for batch in buffer for x in batch["x"]], np.int64)


def test_native_thread_fills_a_buffer():
    buffer = pyecho.EchoBuffer({"x": pyecho.Field((), np.int64)}, batch_size=4, shuffle_buffer=16)
    capsule = buffer.capsule

    def produce():
        calls = Calls()
        for number in range(100):
            assert calls.put(handle_of(capsule), number) == OK
        assert calls.close(handle_of(capsule)) == OK

    thread = threading.Thread(target=produce)
    thread.start()
    assert (np.bincount(rows(buffer)) == 2).all()
    thread.join()


def test_capsule_outlives_its_buffer():
    buffer = pyecho.EchoBuffer({"x": pyecho.Field((), np.int64)}, batch_size=4, shuffle_buffer=16)
    capsule = buffer.capsule
    assert Calls().put(handle_of(capsule), 0) == OK
    del buffer
    gc.collect()
    assert Calls().put(handle_of(capsule), 0) == CLOSED


def test_only_python_consumes_a_buffer_of_pythons():
    buffer = pyecho.EchoBuffer({"x": pyecho.Field((), np.int64)}, batch_size=4)
    batch = (ctypes.c_uint64 * 8)(56)
    assert Calls().acquire(handle_of(buffer.capsule), batch, 0) == MISUSE


def test_pointer_of_a_capsule_is_good_for_as_long_as_the_buffer():
    buffer = pyecho.EchoBuffer({"x": pyecho.Field((), np.int64)}, batch_size=4)
    handle = handle_of(buffer.capsule)
    gc.collect()
    assert handle_of(buffer.capsule) == handle
    assert Calls().put(handle, 0) == OK


def test_libpyecho_tells_what_was_wrong_with_a_buffer_of_pythons():
    buffer = pyecho.EchoBuffer({"x": pyecho.Field((), np.int64)}, batch_size=4)
    library = ctypes.CDLL(pyecho.get_library())
    library.pyecho_last_error.restype = ctypes.c_char_p
    assert Calls().commit(handle_of(buffer.capsule), ctypes.byref(Slot()), 1) == MISUSE
    assert b"not reserved" in library.pyecho_last_error()
    assert library.pyecho_retain(None) != OK
    assert b"NULL" in library.pyecho_last_error()


def test_references_have_no_capsule():
    buffer = pyecho.EchoBuffer({"name": pyecho.Field((), object)}, batch_size=4)
    with pytest.raises(pyecho.ConfigError, match=r"item\['name'\]"):
        _ = buffer.capsule


def test_files_for_native_code_are_there():
    assert (Path(pyecho.get_include()) / "pyecho" / "pyecho.h").exists()
    assert (Path(pyecho.get_include()) / "pyecho" / "pyecho.hpp").exists()
    assert (Path(pyecho.get_cmake_dir()) / "pyecho-config.cmake").exists()
    assert Path(pyecho.get_library()).exists()
