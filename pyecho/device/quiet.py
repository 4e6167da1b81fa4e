"""Calls of PyTorch that keep the GIL, for what `next()` does.

Methods of tensors let go of it. Beside a thread of plain Python each of them then costs
5 ms, the time after which Python switches threads. These are the C functions that PyTorch exports
for compiled models. None of them waits for the device.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch


class View(NamedTuple):
    """A tensor in a block of memory."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    begin: int  # in bytes


class Quiet:
    """The functions. They return None if they fail: then PyTorch's methods say why."""

    def __init__(self, library: ctypes.PyDLL, dtypes: Sequence[torch.dtype]) -> None:
        self._library = library
        self._codes = {dtype: int(getattr(library, _name(dtype))()) for dtype in dtypes}
        self._steal = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs
        self._handle_of = torch._C._aoti.unsafe_alloc_void_ptr_from_tensor
        new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._capsule = new(("PyCapsule_New", ctypes.pythonapi))
        pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        self._pointer = pointer(("PyCapsule_GetPointer", ctypes.pythonapi))

    def views(self, memory: torch.Tensor, views: Sequence[View]) -> list[torch.Tensor] | None:
        """Return tensors in this memory, each with a counter of changes of its own."""
        handles: dict[torch.dtype, ctypes.c_void_p] = {}
        made: list[ctypes.c_void_p] = []
        try:  # a handle is noted before it is made, since Ctrl-C comes right after a call
            own = handles[torch.uint8] = ctypes.c_void_p()
            own.value = self._pointer(self._handle_of(memory), None)
            for view in views:
                handle = handles.get(view.dtype)
                if handle is None:
                    handle = handles[view.dtype] = ctypes.c_void_p()
                    if self._library.aoti_torch_view_dtype(
                        own, self._codes[view.dtype], ctypes.byref(handle)
                    ):
                        return None
                made.append(ctypes.c_void_p())
                if self._library.aoti_torch__reinterpret_tensor(
                    handle,
                    ctypes.c_int64(len(view.shape)),
                    _numbers(view.shape),
                    _numbers(view.strides),
                    ctypes.c_int64(view.begin // view.dtype.itemsize),
                    ctypes.byref(made[-1]),
                ):
                    return None
            capsules = [self._capsule(handle, None, None) for handle in made]
            made = []  # theirs from here on; no signal comes between this and the call
            return list(self._steal(capsules))
        finally:
            for handle in (*handles.values(), *made):
                self._library.aoti_torch_delete_tensor_object(handle)


def _name(dtype: torch.dtype) -> str:
    return f"aoti_torch_dtype_{str(dtype).removeprefix('torch.')}"


def _numbers(numbers: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(numbers))(*numbers)


@cache
def quiet(dtypes: tuple[torch.dtype, ...]) -> Quiet | None:
    """Return the functions, None if this build of PyTorch has not all of them for these dtypes."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    names = ["view_dtype", "_reinterpret_tensor", "delete_tensor_object"]
    try:
        found = ctypes.PyDLL(str(library))
        complete = all(hasattr(found, f"aoti_torch_{name}") for name in names)
        return Quiet(found, dtypes) if complete else None
    except (OSError, AttributeError):
        return None
