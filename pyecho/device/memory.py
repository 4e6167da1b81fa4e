"""The host memory of batches: pageable or pinned."""

from __future__ import annotations

import sys
import warnings

from pyecho._core import Pinning, cuda_active_devices
from pyecho.config import Memory

__all__ = [
    "copy_streams",
    "default_device",
    "pinning_for",
    "warn_if_pageable",
]

_MOST_LENT_STREAMS = 256  # of one priority; PyTorch has 32
_lent_streams: dict[int, tuple[int, ...]] = {}


def pinning_for(memory: Memory, device: int | None) -> Pinning | None:
    """Return what pins batches for a device; None leaves them pageable.

    Raises `CudaError` where pinned memory was asked for and there is no CUDA.
    """
    if memory == "pageable" or (memory == "auto" and device is None):
        return None
    return Pinning(
        device=default_device() if device is None else device, required=memory == "pinned"
    )


def default_device() -> int:
    """Return PyTorch's current device if PyTorch uses CUDA in this process, else 0."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.current_device())


def copy_streams() -> list[tuple[int, int, tuple[int, ...]]]:
    """Return the streams on which the caller may have copied batches, for each device in use.

    They are PyTorch's current stream, or the default stream (0) if PyTorch does not use CUDA in
    this process, and those that PyTorch lends to its users.
    """
    devices = cuda_active_devices()
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return [(device, 0, ()) for device in devices]
    return [
        (device, int(torch.cuda.current_stream(device).cuda_stream), lent_streams(device))
        for device in devices
        if device < torch.cuda.device_count()
    ]


def lent_streams(device: int) -> tuple[int, ...]:
    """Return the streams that PyTorch hands out as `torch.cuda.Stream`.

    It makes a fixed number for each device and priority, hands them out in turn and keeps them for
    the life of the process, so asking until nothing new comes finds them all.
    """
    if device not in _lent_streams:
        torch = sys.modules["torch"]
        found: set[int] = set()
        try:
            lowest, highest = torch.cuda.Stream.priority_range()
            for priority in range(highest, lowest + 1):
                known = 0  # draws in a row that brought nothing new
                of_priority: set[int] = set()
                while known <= len(of_priority) <= _MOST_LENT_STREAMS:
                    stream = int(torch.cuda.Stream(device, priority=priority).cuda_stream)
                    known = known + 1 if stream in of_priority else 0
                    of_priority.add(stream)
                found |= of_priority
        except (AttributeError, RuntimeError, TypeError, ValueError):
            pass  # a PyTorch of another kind: what was found, and the current stream
        _lent_streams[device] = tuple(sorted(found))
    return _lent_streams[device]


def warn_if_pageable(pinning: Pinning | None) -> None:
    """Warn if memory could not be pinned that should have been."""
    if pinning is not None and pinning.failure:
        warnings.warn(
            f"batches stay in pageable memory, which makes copies to the device slower: "
            f"{pinning.failure}",
            RuntimeWarning,
            stacklevel=3,
        )
