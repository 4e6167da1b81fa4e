"""Devices: which one a loader's `device` names, and whether it is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pyecho import cuda
from pyecho._core import ConfigError, CudaError

ACCELERATORS = ("cuda", "xpu", "mps")
"""Kinds of devices that batches can go to. PyTorch calls AMD's "cuda" as well."""


def named_device(device: Any) -> torch.device | None:
    """Return the device that a loader's `device` names; None for the host. Asks no driver.

    Raises `ConfigError` for everything else.
    """
    if device is None:
        return None
    found = _read(device)
    if found is not None and found.type == "cpu":
        return None
    if found is None or found.type not in ACCELERATORS:
        raise ConfigError(
            "device must be a CUDA device or the CPU (or an xpu or mps device), got "
            f"{device!r}; pass 'cuda', 'cuda:0', the number of a CUDA device, a torch.device, or "
            "None to leave batches on the host"
        )
    return found


def _read(device: Any) -> torch.device | None:
    """Return the device that `device` names, None if it names none."""
    if isinstance(device, bool):
        return None
    try:
        if not isinstance(device, int | np.integer):
            return torch.device(device)
        # One of CUDA's, whatever this build of PyTorch prefers; numbers that are too large wrap.
        found = torch.device("cuda", int(device))
        return found if found.index == device else None
    except (RuntimeError, TypeError, ValueError, OverflowError):  # NumPy's numbers wrap, too
        return None


def present_device(device: torch.device) -> torch.device:
    """Return a device with its number, that of the calling thread's current device by default.

    Loads the driver. Raises `CudaError` where CUDA is missing, `ConfigError` if it is another kind
    of device that is missing, or this one.
    """
    module: Any = torch.get_device_module(device.type)
    reason = cuda.why_not() if has_cuda_driver(device) else ""
    if not reason and not module.is_available():
        reason = (
            f"this build of PyTorch ({torch.__version__}) cannot use it; install one with "
            f"{device.type.upper()} from pytorch.org"
        )
    if reason:
        error = CudaError if device.type == "cuda" else ConfigError
        raise error(f"device={str(device)!r} needs {device.type.upper()}: {reason}")
    count = module.device_count()
    number = device.index
    if number is None:
        number = module.current_device() if hasattr(module, "current_device") else 0
    if number >= count:
        name, s = device.type.upper(), "s" * (count != 1)
        raise ConfigError(
            f"device={str(device)!r} is not there: this process sees {count} {name} device{s}, "
            f"numbered from 0; pass one of them, or make more visible (CUDA_VISIBLE_DEVICES)"
        )
    return torch.device(device.type, number)


def has_cuda_driver(device: torch.device) -> bool:
    """Return True for a device of NVIDIA's, whose driver pyecho asks and calls by itself."""
    return device.type == "cuda" and torch.version.hip is None
