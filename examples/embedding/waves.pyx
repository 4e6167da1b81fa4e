# cython: language_level=3
"""A source whose examples Cython makes, straight in the slots and without the GIL."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport sin
from libc.stdint cimport int64_t

from cpyecho cimport (
    PYECHO_CAPSULE_NAME,
    PYECHO_CLOSED,
    PYECHO_FOREVER,
    PYECHO_OK,
    pyecho_buffer,
    pyecho_slot,
    pyecho_status,
)

import numpy as np
import pyecho

cdef enum:
    STEPS = 256


cdef pyecho_status produce(pyecho_buffer* buffer, int64_t examples) noexcept nogil:
    """Put waves of rising frequency. Return the first status that is not PYECHO_OK."""
    cdef pyecho_slot slot
    cdef pyecho_status status = PYECHO_OK
    cdef float* wave
    cdef int64_t number, step
    for number in range(examples):
        status = buffer.api.reserve(buffer, &slot, 1, PYECHO_FOREVER, NULL)
        if status != PYECHO_OK:
            return status
        wave = <float*> slot.data
        for step in range(STEPS):
            wave[step] = <float> sin(0.001 * number * step)
        status = buffer.api.commit(buffer, &slot, 1)
    return status


class Waves:
    """A native source: number n of the examples is the wave sin(n * t)."""

    def __init__(self, examples):
        self.examples = examples

    def __len__(self):
        return self.examples

    def __pyecho_spec__(self):
        """Describe an example."""
        return {"wave": pyecho.Field((STEPS,), np.float32)}

    def __pyecho_feed__(self, capsule):
        """Fill the slots of one pass."""
        cdef pyecho_buffer* buffer = <pyecho_buffer*> PyCapsule_GetPointer(capsule, PYECHO_CAPSULE_NAME)
        cdef int64_t examples = self.examples
        cdef pyecho_status status
        with nogil:
            status = produce(buffer, examples)
        if status != PYECHO_OK and status != PYECHO_CLOSED:  # closed: the loader has ended the pass
            raise RuntimeError(buffer.api.last_error().decode())
