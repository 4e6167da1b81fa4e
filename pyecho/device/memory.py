"""The host memory of batches: pageable or pinned."""

from __future__ import annotations

import functools
import sys
import warnings
from typing import Any

from pyecho._core import Pinning, cuda_active_devices
from pyecho.config import Memory

_DRAWS = 256  # of streams of one priority; PyTorch has 32


def pinning_for(memory: Memory, device: int | None) -> Pinning | None:
    """Return what pins batches for a device; None leaves them pageable.

    Raises `CudaError` where pinned memory was asked for and there is no CUDA.
    """
    if memory == "pageable" or (memory == "auto" and device is None):
        return None
    if device is None:  # PyTorch's current one, if PyTorch uses CUDA in this process
        used = _torch_cuda()
        device = 0 if used is None else int(used.current_device())
    return Pinning(device=device, required=memory == "pinned")


def _torch_cuda() -> Any:
    """Return `torch.cuda` if PyTorch uses CUDA in this process, else None."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


def copy_streams() -> list[tuple[int, int, tuple[int, ...]]]:
    """Return the streams on which the caller may have copied batches, for each device in use.

    They are PyTorch's current stream, or the default stream (0) if PyTorch does not use CUDA in
    this process, and those that PyTorch lends to its users.
    """
    devices = cuda_active_devices()
    used = _torch_cuda()
    if used is None:
        return [(device, 0, ()) for device in devices]
    return [
        (device, int(used.current_stream(device).cuda_stream), lent_streams(device))
        for device in devices
        if device < used.device_count()
    ]


@functools.cache
def lent_streams(device: int) -> tuple[int, ...]:
    """Return the streams that PyTorch hands out as `torch.cuda.Stream`.

    It makes a fixed number for each device and priority, hands them out in turn and keeps them for
    the life of the process, so asking more often than there are streams finds them all.
    """
    stream_type = _torch_cuda().Stream
    try:
        lowest, highest = stream_type.priority_range()
        streams = {
            int(stream_type(device, priority=priority).cuda_stream)
            for priority in range(highest, lowest + 1)
            for _ in range(_DRAWS)
        }
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return ()  # a PyTorch of another kind: the current stream is left
    return tuple(sorted(streams))


def warn_if_pageable(pinning: Pinning | None) -> None:
    """Warn if memory could not be pinned that should have been."""
    if pinning is not None and pinning.failure:
        warnings.warn(
            f"batches stay in pageable memory, which makes copies to the device slower: "
            f"{pinning.failure}",
            RuntimeWarning,
            stacklevel=3,
        )
