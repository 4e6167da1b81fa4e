"""Queries of CUDA on this machine. The first one loads the driver."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache

from pyecho._core import CudaError

__all__ = ["device_count", "driver_version", "is_available", "why_not"]

_VARIABLE = "PYECHO_CUDA_DRIVER"
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


@dataclass(frozen=True)
class _Driver:
    """The driver as the process that loaded it found it."""

    library: ctypes.CDLL | None = None
    version: int = 0
    devices: int = 0
    missing: str = ""
    process: int = 0


def is_available() -> bool:
    """Return whether there is a driver that will do, and a device."""
    return not why_not()


def device_count() -> int:
    """Return the number of devices that this process may use; 0 without a driver."""
    return _driver().devices


def driver_version() -> tuple[int, int] | None:
    """Return (major, minor) of the newest CUDA the driver supports; None without a driver."""
    version = _driver().version
    return (version // 1000, version % 1000 // 10) if version else None


def why_not() -> str:
    """Return what is missing and how to get it, or "" if CUDA is available."""
    driver = _driver()
    if not driver.missing and driver.process != os.getpid():
        return (
            "CUDA was initialised before fork() and cannot be used in the child; use the 'spawn' "
            "start method, or start the child before the first use of CUDA"
        )
    return driver.missing


def require() -> None:
    """Raise `CudaError` if CUDA is not available, or not any more, in a forked child."""
    if reason := why_not():
        raise CudaError(reason)


def relax_capture() -> None:
    """Keep later calls of this thread from disturbing a CUDA graph that another thread captures."""
    require()
    library = _driver().library
    assert library is not None
    library.cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_RELAXED)))


@cache
def _driver() -> _Driver:
    path = os.environ.get(_VARIABLE) or "libcuda.so.1"
    if path == "none":
        return _Driver(missing=f"CUDA is switched off by {_VARIABLE}=none; unset it")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        return _Driver(
            missing=f"no CUDA driver was found ({error}); install NVIDIA's driver, or name its "
            f"libcuda in {_VARIABLE}"
        )
    try:
        return _initialized(library)
    except AttributeError as error:
        return _Driver(missing=f"{path} is no CUDA driver ({error}); name another in {_VARIABLE}")


def _initialized(library: ctypes.CDLL) -> _Driver:
    version, devices = ctypes.c_int(), ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))  # needs no cuInit()
    for call, arguments in (("cuInit", (0,)), ("cuDeviceGetCount", (ctypes.byref(devices),))):
        if result := getattr(library, call)(*arguments):
            name = ctypes.c_char_p(b"unknown error")
            library.cuGetErrorName(result, ctypes.byref(name))
            return _Driver(
                version=version.value,
                missing=f"{call} failed: {(name.value or b'').decode()} ({result}); check that a "
                "device is visible (nvidia-smi, CUDA_VISIBLE_DEVICES)",
            )
    if devices.value == 0:
        return _Driver(
            version=version.value,
            missing="the CUDA driver sees no device; check that one is visible (nvidia-smi, "
            "CUDA_VISIBLE_DEVICES)",
        )
    return _Driver(library, version.value, devices.value, process=os.getpid())
