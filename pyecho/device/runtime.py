"""The runtime of CUDA, or of HIP, that PyTorch has loaded: no link against it, and no header."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path

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


@cache
def runtime() -> list[int] | None:
    """Return the addresses of the functions, None if the runtime is not a library of its own."""
    names = [f"{'hip' if torch.version.hip else 'cuda'}{name}" for name in _NAMES]
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    for path in dict.fromkeys(
        line.split(maxsplit=5)[-1] for line in lines if _LIBRARY.search(line)
    ):
        library = ctypes.CDLL(path)
        if all(hasattr(library, name) for name in names):
            pointers = [ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in names]
            return [pointer.value or 0 for pointer in pointers]
    return None
