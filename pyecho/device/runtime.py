"""The runtime of CUDA that PyTorch has loaded: no link against it, and no header.

`wait`, `record`, `passed` and `copy` keep the GIL; PyTorch's own methods let go of it. PyTorch's
are called where the runtime was not found, and after an error, since they say what it was.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from pyecho import _core
from pyecho.device.leaves import tensor_of
from pyecho.device.place import on_stream

_NAMES = (
    "cudaSetDevice",
    "cudaThreadExchangeStreamCaptureMode",
    "cudaStreamWaitEvent",
    "cudaMemcpyAsync",
    "cudaEventRecord",
    "cudaEventQuery",
)
"""The functions of `_core.Runtime`, in its order."""

_LIBRARY = re.compile(r"/libcudart[^/]*\.so[^/]*$")


@cache
def runtime() -> _core.Runtime | None:
    """Return the functions, None if the runtime is not a library of its own."""
    for library, lacking in libraries():
        if not lacking:
            pointers = [ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in _NAMES]
            return _core.Runtime([pointer.value or 0 for pointer in pointers])
    return None


def libraries() -> Iterator[tuple[ctypes.CDLL, list[str]]]:
    """Yield each runtime that is loaded, and the functions that it lacks."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    for path in dict.fromkeys(
        line.split(maxsplit=5)[-1] for line in lines if _LIBRARY.search(line)
    ):
        try:  # only one that is loaded: a file of data may have been given such a name
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
        except OSError:
            continue
        yield library, [name for name in _NAMES if not hasattr(library, name)]


def wait(stream: Any, event: Any) -> None:
    """Have a stream wait for an event that was recorded."""
    found = _runtime_for(stream)
    if found is None or not found.wait(stream.cuda_stream, event.cuda_event):
        stream.wait_event(event)


def record(event: Any, stream: Any) -> None:
    """Record an event on a stream."""
    found = _runtime_for(stream)
    made = found is not None and event.cuda_event  # which PyTorch makes when it records
    if found is None or not made or not found.record(made, stream.cuda_stream):
        event.record(stream)


def passed(event: Any, stream: Any) -> bool:
    """Return True if what was recorded is done; `stream` is of its device."""
    found = _runtime_for(stream)
    return bool(event.query()) if found is None else found.passed(event.cuda_event)


def copy(to: Any, source: torch.Tensor, size_bytes: int, stream: Any) -> None:
    """Copy bytes of pinned memory to a block on a device, on a stream.

    PyTorch does not see this copy. It lends dropped memory to others only once this stream is done,
    if PyTorch itself has copied from that memory on this stream before.
    """
    found = _runtime_for(stream)
    if (
        found is None
        or not isinstance(to, _core.TorchMemory)
        or not found.copy(to.address, source.data_ptr(), size_bytes, stream.cuda_stream)
    ):
        copy_by_torch(to, source, size_bytes, stream)


def copy_by_torch(to: Any, source: torch.Tensor, size_bytes: int, stream: Any) -> None:
    """Copy bytes of host memory to a block on a device, on a stream; wait if it is pageable."""
    tensor = tensor_of(to)
    with on_stream(tensor.device, stream):
        source = source.narrow(0, 0, size_bytes)
        tensor.narrow(0, 0, size_bytes).copy_(source, non_blocking=source.is_pinned())


def _runtime_for(stream: Any) -> _core.Runtime | None:
    """Return the runtime for a stream if its calls make no context on another device."""
    is_cuda = isinstance(stream, torch.cuda.Stream)
    return runtime() if is_cuda and torch.cuda.current_device() == stream.device_index else None
