"""Losses on their way from a device: copied without a wait, read once they are there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Arrival:
    """The losses of one batch."""

    ready: Callable[[], bool]
    read: Callable[[], NDArray[np.float64]]
    """Waits if they are not ready."""


def arrival_of(losses: Any) -> Arrival:
    """Begin to fetch losses: anything with numbers, tensors of PyTorch and arrays of JAX."""
    if hasattr(losses, "detach"):
        losses = losses.detach()
        if losses.device.type == "cuda":
            return _from_cuda(losses)
        if losses.device.type != "cpu":
            kept = losses.clone()
            return Arrival(lambda: False, lambda: _array(kept.float().cpu().numpy()))
        losses = losses.double().numpy()
    if hasattr(losses, "copy_to_host_async"):
        losses.copy_to_host_async()
        return Arrival(losses.is_ready, lambda: _array(losses))
    array = np.array(losses, np.float64)  # a copy: it may wait for others that come from a device
    return Arrival(lambda: True, lambda: array)


def _from_cuda(losses: Any) -> Arrival:
    import torch

    host = torch.empty(losses.shape, dtype=torch.float32, pin_memory=True)
    with torch.cuda.device(losses.device):
        host.copy_(losses, non_blocking=True)
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()

    def read() -> NDArray[np.float64]:
        copied.synchronize()
        return _array(host.numpy())

    return Arrival(copied.query, read)


def _array(losses: Any) -> NDArray[np.float64]:
    return np.asarray(losses, np.float64)
