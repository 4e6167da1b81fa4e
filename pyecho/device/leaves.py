"""The leaves of a batch, as tensors in one block of memory.

They are no views of it: views share a counter of changes, so that a change of one leaf would make
autograd refuse the others.

Methods of tensors let go of the GIL. Beside a thread of plain Python each of them then costs 5 ms,
the time after which Python switches threads, and `next()` would call two for each leaf. So leaves
are made by the C functions that PyTorch exports for compiled models, which keep it; none of them
waits for the device. Where a build of PyTorch lacks them, methods do.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

ALIGNMENT = 64
"""Blocks are multiples of this, so that they can be viewed as any dtype; leaves begin at such."""


class Leaf(NamedTuple):
    """Where the rows of a leaf lie in a block."""

    dtype: torch.dtype
    shape: tuple[int, ...]  # of a row
    strides: tuple[int, ...]  # of a batch
    begin: int  # in bytes


def leaf_of(dtype: torch.dtype, shape: Sequence[int], begin: int = 0) -> Leaf:
    """Return a leaf whose elements lie side by side."""
    strides = [math.prod(shape[axis:]) for axis in range(len(shape) + 1)]
    return Leaf(dtype, tuple(shape), tuple(strides), begin)


def aligned(size_bytes: int) -> int:
    """Return a size that can be viewed as any dtype."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def leaves_in(memory: torch.Tensor, leaves: Sequence[Leaf], rows: int) -> list[torch.Tensor]:
    """Return the first rows of each leaf in this memory, a tensor of bytes."""
    functions = _functions() if type(memory) is torch.Tensor else None  # subclasses would be lost
    made = None if functions is None else functions.leaves_in(memory, leaves, rows)
    if made is not None:
        return made
    return [
        memory.view(dtype).as_strided((rows, *shape), strides, begin // dtype.itemsize).data
        for dtype, shape, strides, begin in leaves
    ]


class _Functions:
    """PyTorch's C functions. A handle is a tensor that has to be deleted."""

    def __init__(self, library: ctypes.PyDLL) -> None:
        self._view = library.aoti_torch_view_dtype
        self._reinterpret = library.aoti_torch__reinterpret_tensor
        self._delete = library.aoti_torch_delete_tensor_object
        self._steal = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs
        self._handle_of = torch._C._aoti.unsafe_alloc_void_ptr_from_tensor
        new = ctypes.PYFUNCTYPE(ctypes.py_object, *[ctypes.c_void_p] * 3)
        self._capsule = new(("PyCapsule_New", ctypes.pythonapi))
        pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        self._pointer = pointer(("PyCapsule_GetPointer", ctypes.pythonapi))
        self._library = library

    def leaves_in(
        self, memory: torch.Tensor, leaves: Sequence[Leaf], rows: int
    ) -> list[torch.Tensor] | None:
        """Do the same as the function; None if that fails."""
        handles: dict[torch.dtype, ctypes.c_void_p] = {}
        made: list[ctypes.c_void_p] = []
        try:  # a handle is noted before it is made, since Ctrl-C comes right after a call
            own = handles[torch.uint8] = ctypes.c_void_p()
            own.value = self._pointer(self._handle_of(memory), None)
            for dtype, shape, strides, begin in leaves:
                handle = handles.get(dtype)
                if handle is None:
                    handle = handles[dtype] = ctypes.c_void_p()
                    if self._view(own, self._code(dtype), ctypes.byref(handle)):
                        return None
                made.append(ctypes.c_void_p())
                if self._reinterpret(
                    handle,
                    ctypes.c_int64(len(strides)),
                    _numbers((rows, *shape)),
                    _numbers(strides),
                    ctypes.c_int64(begin // dtype.itemsize),
                    ctypes.byref(made[-1]),
                ):
                    return None
            capsules = [self._capsule(handle, None, None) for handle in made]
            made = []  # theirs from here on; no signal comes between this and the call
            return list(self._steal(capsules))
        except AttributeError:  # a dtype that this build does not know
            return None
        finally:
            for handle in (*handles.values(), *made):
                self._delete(handle)

    def _code(self, dtype: torch.dtype) -> int:
        name = str(dtype).removeprefix("torch.")
        return int(getattr(self._library, f"aoti_torch_dtype_{name}")())


def _numbers(numbers: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(numbers))(*numbers)


@cache
def _functions() -> _Functions | None:
    """Return the functions, None if this build of PyTorch has not all of them."""
    try:
        return _Functions(ctypes.PyDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so")))
    except (OSError, AttributeError):
        return None
