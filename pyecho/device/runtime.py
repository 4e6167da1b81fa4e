"""The runtime of CUDA that PyTorch has loaded: no link against it, and no header.

`wait`, `record` and `copy` keep the GIL; PyTorch's own methods let go of it. PyTorch's are called
where the runtime was not found, and after an error, since they say what it was.
"""

from __future__ import annotations

import ctypes
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch

from pyecho import _core

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
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    for path in dict.fromkeys(
        line.split(maxsplit=5)[-1] for line in lines if _LIBRARY.search(line)
    ):
        try:  # only one that is loaded: a file of data may have been given such a name
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
        except OSError:
            continue
        if all(hasattr(library, name) for name in _NAMES):
            pointers = [ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in _NAMES]
            return _core.Runtime([pointer.value or 0 for pointer in pointers])
    return None


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


def copy(to: torch.Tensor, source: torch.Tensor, stream: Any) -> None:
    """Copy pinned memory to a device on a stream, the current one.

    PyTorch does not see this copy. It lends dropped memory to others only once this stream is done,
    if PyTorch itself has copied from that memory on this stream before.
    """
    found = _runtime_for(stream)
    places = to.data_ptr(), source.data_ptr(), source.nbytes
    if found is None or not found.copy(*places, stream.cuda_stream):
        to.copy_(source, non_blocking=True)


def _runtime_for(stream: Any) -> _core.Runtime | None:
    """Return the runtime for a stream if its calls make no context on another device."""
    is_cuda = isinstance(stream, torch.cuda.Stream)
    return runtime() if is_cuda and torch.cuda.current_device() == stream.device_index else None
