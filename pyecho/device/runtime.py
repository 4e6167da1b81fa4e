"""The runtime of CUDA, or of HIP, that PyTorch has loaded: no link against it, and no header."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch

_NAMES = (
    "SetDevice",
    "ThreadExchangeStreamCaptureMode",
    "StreamWaitEvent",
    "MemcpyAsync",
    "EventRecord",
    "EventQuery",
)
"""The functions of `_core.Uploads`, in its order."""

_LIBRARY = re.compile(r"/(libcudart|libamdhip64)[^/]*\.so[^/]*$")


class Runtime:
    """Functions by their addresses, and two that keep the GIL, as methods of events do not."""

    def __init__(self, addresses: list[int]) -> None:
        self.addresses = addresses
        pointer, by_name = ctypes.c_void_p, dict(zip(_NAMES, addresses, strict=True))
        waiting = ctypes.PYFUNCTYPE(ctypes.c_int, pointer, pointer, ctypes.c_uint)
        self._wait = waiting(by_name["StreamWaitEvent"])
        self._record = ctypes.PYFUNCTYPE(ctypes.c_int, pointer, pointer)(by_name["EventRecord"])

    def wait(self, stream: Any, event: Any) -> None:
        """Have a stream wait for an event."""
        if not _is_current(stream) or self._wait(stream.cuda_stream, event.cuda_event, 0):
            stream.wait_event(event)  # says why, if it fails again

    def record(self, event: Any, stream: Any) -> None:
        """Record an event."""
        if not _is_current(stream) or self._record(event.cuda_event, stream.cuda_stream):
            event.record(stream)


def _is_current(stream: Any) -> bool:
    """Return True if no call on the stream makes a context on another device."""
    return bool(torch.cuda.current_device() == stream.device_index)


@cache
def runtime() -> Runtime | None:
    """Return the runtime, None if it is not a library of its own."""
    names = [f"{'hip' if torch.version.hip else 'cuda'}{name}" for name in _NAMES]
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    for path in dict.fromkeys(
        line.split(maxsplit=5)[-1] for line in lines if _LIBRARY.search(line)
    ):
        library = ctypes.CDLL(path)
        if all(hasattr(library, name) for name in names):
            pointers = [ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in names]
            return Runtime([pointer.value or 0 for pointer in pointers])
    return None
