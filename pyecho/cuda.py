"""Queries of CUDA on this machine. The first one loads the driver."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from pyecho._core import CudaError

__all__ = ["device_count", "driver_version", "is_available", "why_not"]

_VARIABLE = "PYECHO_CUDA_DRIVER"
_VISIBLE = "check that a device is visible (nvidia-smi, CUDA_VISIBLE_DEVICES)"
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_PRIORITY = 0  # the lowest, so that no kernel of the step waits for one of pyecho's


@dataclass(frozen=True)
class _Driver:
    """The driver as the process that loaded it found it."""

    missing: str
    library: Any = None
    version: int = 0
    devices: int = 0
    process: int = 0


def is_available() -> bool:
    """Return whether there is a driver that will do, and a device."""
    return not why_not()


def device_count() -> int:
    """Return the number of devices that this process may use; 0 without a driver."""
    return _driver().devices


def device_names() -> list[str]:
    """Return the names of the devices that this process may use."""
    names, library = [], _driver().library
    for number in range(device_count()):
        device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        _call(library, "cuDeviceGet", ctypes.byref(device), number)
        _call(library, "cuDeviceGetName", name, len(name), device)
        names.append(name.value.decode())
    return names


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


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Keep calls of this thread from disturbing a CUDA graph that another thread captures.

    Raises `CudaError` if CUDA is not available, or not any more, in a forked child.
    """
    if reason := why_not():
        raise CudaError(reason)
    exchange = _driver().library.cuThreadExchangeStreamCaptureMode
    mode = ctypes.c_int(_RELAXED)
    exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def new_stream(number: int) -> int:
    """Make a stream on a device, of the lowest priority. It is never closed.

    It does not wait for the default stream.
    """
    device, context, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    library = _driver().library
    _call(library, "cuDeviceGet", ctypes.byref(device), number)
    _call(library, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _call(library, "cuCtxPushCurrent_v2", context)
    _call(library, "cuStreamCreateWithPriority", ctypes.byref(stream), _NON_BLOCKING, _PRIORITY)
    _call(library, "cuCtxPopCurrent_v2", ctypes.byref(context))
    return stream.value or 0


@cache
def _driver() -> _Driver:
    path = os.environ.get(_VARIABLE) or "libcuda.so.1"
    if path == "none":
        return _Driver(f"CUDA is switched off by {_VARIABLE}=none; unset it")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        return _Driver(
            f"no CUDA driver was found ({error}); install NVIDIA's driver, or name its libcuda in "
            f"{_VARIABLE}"
        )
    version, devices = ctypes.c_int(), ctypes.c_int()
    try:
        _call(library, "cuDriverGetVersion", ctypes.byref(version))  # needs no cuInit()
        _call(library, "cuInit", 0)
        _call(library, "cuDeviceGetCount", ctypes.byref(devices))
    except AttributeError as error:
        return _Driver(f"{path} is no CUDA driver ({error}); name another in {_VARIABLE}")
    except CudaError as error:
        return _Driver(f"{error}; {_VISIBLE}", version=version.value)
    missing = "" if devices.value else f"the CUDA driver sees no device; {_VISIBLE}"
    return _Driver(missing, library, version.value, devices.value, os.getpid())


def _call(library: Any, name: str, *arguments: Any) -> None:
    """Call the driver; raise `CudaError` if it fails."""
    if result := getattr(library, name)(*arguments):
        error = ctypes.c_char_p(b"")
        library.cuGetErrorName(result, ctypes.byref(error))
        shown = (error.value or b"unknown error").decode()
        raise CudaError(f"{name} failed: {shown} ({result})")
