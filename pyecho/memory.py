"""What host memory batches are made of."""

from __future__ import annotations

import sys
import warnings
from typing import Any, Literal

from pyecho._core import ConfigError, Pinning

__all__ = [
    "Memory",
    "checked_memory",
    "current_stream",
    "default_device",
    "pinning_for",
    "warn_if_pageable",
]

Memory = Literal["auto", "pageable", "pinned"]
"""``"pinned"`` memory can be read by a CUDA device while everybody goes on, and must be had;
``"auto"`` is pinned if a device is in use and the system allows it."""

_MEMORIES = ("auto", "pageable", "pinned")


def checked_memory(value: Any) -> Memory:
    """Return `value` if it names a kind of memory, else raise `ConfigError`."""
    if value not in _MEMORIES:
        raise ConfigError(f"memory must be one of {', '.join(map(repr, _MEMORIES))}, got {value!r}")
    memory: Memory = value
    return memory


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


def current_stream(device: int) -> int:
    """Return the stream on which the calling thread is likely to copy batches to a device.

    It is PyTorch's current one if PyTorch uses CUDA in this process, else the default stream (0).
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.current_stream(device).cuda_stream)


def warn_if_pageable(pinning: Pinning | None) -> None:
    """Warn if memory could not be pinned that should have been."""
    if pinning is not None and pinning.failure:
        warnings.warn(
            f"batches stay in pageable memory, which makes copies to the device slower: "
            f"{pinning.failure}",
            RuntimeWarning,
            stacklevel=3,
        )
