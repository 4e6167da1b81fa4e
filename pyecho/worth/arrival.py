"""Losses on their way from a device: copied without a wait, read once they are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Arrival(NamedTuple):
    """The losses of one batch."""

    ready: Callable[[], bool]
    read: Callable[[], Any]
    """Return them as something that NumPy takes. Waits if they are not ready."""


def arrival_of(losses: Any) -> Arrival:
    """Begin to fetch losses: anything with numbers, tensors of PyTorch and arrays of JAX."""
    if hasattr(losses, "detach"):
        losses = losses.detach()
        if losses.device.type == "cuda":
            return _from_cuda(losses)
        losses = losses.cpu().double().numpy()
    if hasattr(losses, "copy_to_host_async"):
        losses.copy_to_host_async()
        return Arrival(losses.is_ready, lambda: losses)
    array = np.array(losses, np.float64)  # a copy: it may wait for others that come from a device
    return Arrival(lambda: True, lambda: array)


def _from_cuda(losses: Any) -> Arrival:
    import torch

    with torch.cuda.device(losses.device):
        host = losses.to("cpu", torch.float32, non_blocking=True)  # into pinned memory
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()

    def read() -> Any:
        copied.synchronize()
        return host.numpy()

    return Arrival(copied.query, read)
