"""Devices and leaves, as the device side of the loader for PyTorch sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pyecho import cuda
from pyecho._core import ConfigError, CudaError


def cuda_device(device: Any) -> torch.device | None:
    """Return the CUDA device that a loader's `device` names; None for the host.

    Raises `ConfigError` for another kind of device and for one that is not there, `CudaError` where
    CUDA is missing.
    """
    if device is None:
        return None
    found = _named_device(device)
    if found is not None and found.type == "cpu":
        return None
    if found is None or found.type != "cuda":
        raise ConfigError(
            f"device must be a CUDA device or the CPU, got {device!r}; pass 'cuda', 'cuda:0', the "
            "number of a device, a torch.device, or None to leave batches on the host"
        )
    reason = cuda.why_not()
    if not reason and not torch.cuda.is_available():
        reason = (
            f"this build of PyTorch ({torch.__version__}) cannot use it; install one with CUDA "
            "from pytorch.org"
        )
    if reason:
        raise CudaError(f"device={str(found)!r} needs CUDA: {reason}")
    index = torch.cuda.current_device() if found.index is None else found.index
    count = cuda.device_count()
    if index >= count:
        raise ConfigError(
            f"device={str(found)!r} is not there: this process sees {count} CUDA "
            f"device{'s' * (count != 1)}, numbered from 0; pass one of them, or make more visible "
            "(CUDA_VISIBLE_DEVICES)"
        )
    return torch.device("cuda", index)


def _named_device(device: Any) -> torch.device | None:
    """Return the device that `device` names, None if it names none."""
    if isinstance(device, bool):
        return None
    try:
        if not isinstance(device, int | np.integer):
            return torch.device(device)
        # One of CUDA's, whatever this build of PyTorch prefers; numbers that are too large wrap.
        found = torch.device("cuda", int(device))
        return found if found.index == device else None
    except (RuntimeError, TypeError, ValueError, OverflowError):
        return None


WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""A dtype that every operation knows, by its size in bytes."""


def require_dense(tensor: torch.Tensor) -> None:
    """Raise `ConfigError` unless the tensor is dense numbers in host memory."""
    if tensor.is_nested:
        kind = "a nested tensor"
    elif tensor.is_quantized:
        kind = "a quantized tensor"
    elif tensor.layout != torch.strided or tensor.device.type != "cpu":
        kind = f"a {tensor.layout} tensor on {tensor.device}"
    else:
        return
    raise ConfigError(
        f"the source yields {kind}, but pyecho copies dense tensors in host memory; convert it in "
        "the source (.cpu(), .to_dense(), .dequantize(), torch.nested.to_padded_tensor())"
    )


def host_tensor(leaf: Any) -> torch.Tensor | None:
    """Return a tensor or array in host memory as a tensor on it; None for everything else."""
    if isinstance(leaf, torch.Tensor):
        if leaf.device.type != "cpu":
            return None
        require_dense(leaf)
        return leaf.detach().resolve_conj().resolve_neg()
    if not isinstance(leaf, np.ndarray):
        return None
    try:
        torch.from_numpy(np.empty(0, leaf.dtype))
    except (TypeError, ValueError):  # no such dtype; ValueError: a foreign byte order
        return None
    if isinstance(leaf, np.ma.MaskedArray):
        raise ConfigError(
            "masked arrays would lose their mask in a batch; use .filled(), or pass data and mask"
        )
    # PyTorch warns of read-only arrays, and filters of warnings are shared by all threads.
    array = np.require(leaf, requirements=("C", "W"))
    return torch.from_numpy(array)
