"""A source whose examples are made by a function that Numba compiles: no Python, and no GIL.

python numba_source.py [examples]
"""

import ctypes
import sys

import numpy as np
from numba import carray, cfunc, types
from numba.extending import intrinsic

import pyecho

STEPS = 256
PYECHO_FOREVER = -1

library = ctypes.CDLL(pyecho.get_library())
reserve = library.pyecho_reserve
reserve.argtypes = [
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int64,
    ctypes.c_void_p,
]
commit = library.pyecho_commit
commit.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
handle_of = ctypes.pythonapi.PyCapsule_GetPointer
handle_of.restype = ctypes.c_void_p
handle_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


@intrinsic
def pointer_to(context, address):
    """Return an address as a pointer, which `carray` makes an array of."""
    signature = types.CPointer(types.float32)(address)

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return signature, generate


@cfunc(types.int32(types.intp, types.int64, types.int64))
def produce(buffer, examples, seed):
    """Put random walks into the slots of a buffer; return the first status that is not 0."""
    slot = np.empty(3, np.uint64)  # a pyecho_slot: data, ticket, index
    state = np.uint64(seed) * np.uint64(2) + np.uint64(1)
    for _ in range(examples):
        status = reserve(buffer, slot.ctypes, 1, PYECHO_FOREVER, 0)
        if status != 0:
            return status  # PYECHO_CLOSED: the loader has ended the pass
        walk = carray(pointer_to(np.intp(slot[0])), (STEPS,))
        at = np.float32(0)
        for step in range(STEPS):
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            at += np.float32(1) if state >> np.uint64(63) else np.float32(-1)
            walk[step] = at
        commit(buffer, slot.ctypes, 1)
    return 0


class Walks:
    """A native source of random walks; each epoch has others."""

    def __init__(self, examples):
        self.examples = examples
        self.epoch = 0

    def __len__(self):
        return self.examples

    def set_epoch(self, epoch):
        """Be told of the epoch by the loader."""
        self.epoch = epoch

    def __pyecho_spec__(self):
        """Describe an example."""
        return {"walk": pyecho.Field((STEPS,), np.float32)}

    def __pyecho_feed__(self, capsule):
        """Fill the slots; ctypes lets go of the GIL during the call."""
        produce.ctypes(handle_of(capsule, b"pyecho.buffer.v1"), self.examples, self.epoch)


if __name__ == "__main__":
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    loader = pyecho.EchoLoader(Walks(examples), 2, batch_size=32, shuffle_buffer=320)
    for epoch in range(2):
        rows = np.concatenate([batch["walk"] for batch in loader])
        assert rows.shape == (2 * examples, STEPS)
        assert (np.abs(np.diff(rows, axis=1)) == 1).all()
        print(f"epoch {epoch}: {len(rows)} rows, mean end {rows[:, -1].mean():+.2f}")
