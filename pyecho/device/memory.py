"""Pinned host memory of PyTorch's allocator, which knows the copies that read it."""

from __future__ import annotations

import torch

from pyecho import cuda
from pyecho._core import CudaError


def pinned_bytes(size_bytes: int) -> torch.Tensor:
    """Allocate pinned memory; `CudaError` if there is no more.

    It may be dropped while a copy to a device reads from it: the allocator lends it again only
    after the copy.
    """
    try:
        with cuda.relaxed_capture():  # and not in a forked child, where the allocator may be locked
            return torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)
    except CudaError:  # there is no CUDA, or not any more
        raise
    except RuntimeError as error:
        raise CudaError(
            f"no more memory can be pinned ({error}); drop batches you no longer need, give the "
            "machine or container more memory, or pass memory='pageable'"
        ) from error


def pinned_copy(host: torch.Tensor) -> torch.Tensor:
    """Return a copy in pinned memory, or `host` itself if none can be pinned."""
    try:
        pinned = torch.empty(host.shape, dtype=host.dtype, device="cpu", pin_memory=True)
        return pinned.copy_(host)
    except RuntimeError:
        return host  # which the driver then reads before the copy to the device returns
