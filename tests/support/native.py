"""Native sources for tests: the C interface through ctypes."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

import pyecho

OK, TIMEOUT, CLOSED, MISUSE = 0, 2, 3, 8
FOREVER = -1


class Slot(ctypes.Structure):
    """A pyecho_slot."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("ticket", ctypes.c_uint64),
        ("index", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


class Calls:
    """The functions of producers; `with_gil`: called without letting go of the GIL."""

    def __init__(self, *, with_gil: bool = False) -> None:
        library = (ctypes.PyDLL if with_gil else ctypes.CDLL)(pyecho.get_library())
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self.reserve = library.pyecho_reserve
        self.reserve.argtypes = [pointer, pointer, size, ctypes.c_int64, pointer]
        self.commit = library.pyecho_commit
        self.commit.argtypes = [pointer, pointer, size]
        self.fail = library.pyecho_fail
        self.fail.argtypes = [pointer, ctypes.c_char_p]
        self.acquire = library.pyecho_acquire
        self.acquire.argtypes = [pointer, pointer, ctypes.c_int64]
        self.get_stats = library.pyecho_get_stats
        self.get_stats.argtypes = [pointer, pointer]
        self.close = library.pyecho_close
        self.close.argtypes = [pointer]

    def put(self, handle: int, number: int) -> int:
        """Put an example of one number; return the first status that is not 0."""
        slot = Slot()
        status: int = self.reserve(handle, ctypes.byref(slot), 1, FOREVER, None)
        if status == OK:
            ctypes.c_int64.from_address(slot.data).value = number
            status = self.commit(handle, ctypes.byref(slot), 1)
        return status

    def waited_ns(self, handle: int) -> int:
        """Return how long producers have waited for room."""
        stats = (ctypes.c_uint64 * 9)(9 * 8)  # a pyecho_stats, which begins with its size
        assert self.get_stats(handle, stats) == OK
        return stats[7]


def handle_of(capsule: object) -> int:
    """Return the handle in a capsule."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype = ctypes.c_void_p
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    handle: int = pointer_of(capsule, b"pyecho.buffer.v1")
    return handle


class Numbers:
    """A native source of the numbers below `count`, put by some threads."""

    def __init__(self, count: int, *, threads: int = 1, with_gil: bool = False) -> None:
        self.count = count
        self.threads = threads
        self.calls = Calls(with_gil=with_gil)
        self.epochs: list[int] = []
        self.statuses: list[int] = []

    def __len__(self) -> int:
        return self.count

    def set_epoch(self, epoch: int) -> None:
        """Note the epoch."""
        self.epochs.append(epoch)

    def __pyecho_spec__(self) -> Any:
        """Describe an example."""
        return {"x": pyecho.Field((), np.int64)}

    def __pyecho_feed__(self, capsule: object) -> None:
        """Put them all."""
        handle = handle_of(capsule)

        def work(numbers: range) -> None:
            for number in numbers:
                status = self.calls.put(handle, number)
                if status != OK:
                    self.statuses.append(status)
                    return

        parts = [range(start, self.count, self.threads) for start in range(self.threads)]
        others = [threading.Thread(target=work, args=(part,)) for part in parts[1:]]
        for thread in others:
            thread.start()
        work(parts[0])
        for thread in others:
            thread.join()
