"""The C interface from Python, by ctypes alone: a thread puts numbers, this one takes batches.

python ctypes_echo.py [examples]

ctypes lets go of the GIL during each call. For examples that Python makes, `pyecho.EchoBuffer` is
the same with less work; ctypes serves programs that have pyecho's handle and no compiler.
"""

import ctypes
import sys
import threading
from ctypes import (
    byref,
    c_char_p,
    c_double,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)

import numpy as np

import pyecho

OK, END, CLOSED = 0, 1, 3
FOREVER = -1


class Struct(ctypes.Structure):
    """A struct that begins with its size, with the rest 0: what a macro ..._INIT makes in C."""

    def __init__(self):
        super().__init__(ctypes.sizeof(self))


class Leaf(Struct):
    """A pyecho_leaf."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        *(("name", c_char_p), ("dtype", c_char_p), ("shape", ctypes.POINTER(c_int64))),
        *(("ndim", c_uint32), ("reserved", c_uint32)),
        *((name, c_size_t) for name in ("size_bytes", "slot_offset", "batch_offset")),
    ]


class Config(Struct):
    """A pyecho_config."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        *(("leaves", ctypes.POINTER(Leaf)), ("leaf_count", c_size_t), ("factor", c_double)),
        *((name, c_uint64) for name in ("seed", "epoch", "items", "steps_per_epoch", "max_age")),
        *((name, c_uint32) for name in ("min_uses", "batch_size", "shuffle_buffer", "prefetch")),
        *((name, c_uint32) for name in ("threads", "slots_ahead", "held")),
        *((name, c_uint8) for name in ("unique_in_batch", "drop_last", "with_info", "reserved")),
        ("max_bytes", c_size_t),
        *((name, c_void_p) for name in ("allocate", "deallocate", "context")),
    ]


class Slot(ctypes.Structure):
    """A pyecho_slot."""

    _fields_ = [
        ("data", ctypes.POINTER(c_int64)),
        *(("ticket", c_uint64), ("index", c_uint32), ("reserved", c_uint32)),
    ]


class Batch(Struct):
    """A pyecho_batch."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        *(("data", ctypes.POINTER(c_int64)), ("source_index", c_void_p), ("use", c_void_p)),
        *(("rows", c_uint32), ("end", c_uint32), ("id", c_uint64)),
    ]


library = ctypes.CDLL(pyecho.get_library())
library.pyecho_last_error.restype = c_char_p
for name, arguments in {
    "create": [ctypes.POINTER(Config), ctypes.POINTER(c_void_p)],
    "reserve": [c_void_p, ctypes.POINTER(Slot), c_size_t, c_int64, ctypes.POINTER(c_size_t)],
    "commit": [c_void_p, ctypes.POINTER(Slot), c_size_t],
    "acquire": [c_void_p, ctypes.POINTER(Batch), c_int64],
    "release_batch": [c_void_p, ctypes.POINTER(Batch)],
    "close": [c_void_p],
    "stop": [c_void_p],
    "release": [c_void_p],
}.items():
    getattr(library, f"pyecho_{name}").argtypes = arguments


def call(name, *arguments):
    """Call a function of the library; return OK, END or CLOSED, and raise anything else."""
    status = getattr(library, f"pyecho_{name}")(*arguments)
    if status not in (OK, END, CLOSED):
        raise RuntimeError(library.pyecho_last_error().decode())
    return status


def produce(buffer, examples):
    """Put the numbers 0, 1, ..., and end the input."""
    slot = Slot()
    for number in range(examples):
        if call("reserve", buffer, byref(slot), 1, FOREVER, None) != OK:
            return  # the consumer has stopped
        slot.data[0] = number
        call("commit", buffer, byref(slot), 1)
    call("close", buffer)


def consume(buffer):
    """Yield a copy of each batch."""
    batch = Batch()
    while call("acquire", buffer, byref(batch), FOREVER) == OK:
        numbers = np.ctypeslib.as_array(batch.data, (batch.rows,)).copy()
        call("release_batch", buffer, byref(batch))  # from here on, its memory is pyecho's
        yield numbers


def main(examples):
    """Echo so many numbers twice."""
    leaf = Leaf()
    leaf.dtype = b"<i8"
    config = Config()
    config.leaves, config.leaf_count = ctypes.pointer(leaf), 1
    config.factor, config.batch_size, config.shuffle_buffer = 2, 32, 320
    buffer = c_void_p()
    call("create", byref(config), byref(buffer))
    producer = threading.Thread(target=produce, args=(buffer, examples))
    producer.start()
    try:
        rows = np.concatenate(list(consume(buffer)))
    finally:
        call("stop", buffer)  # so that the producer does not wait for room, after an early end
        producer.join()
        library.pyecho_release(buffer)
    assert (np.bincount(rows) == 2).all()
    print(f"{len(rows)} rows, sum {rows.sum()}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
