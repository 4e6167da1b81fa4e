"""Queries of CUDA on this machine. The first one loads the driver."""

from __future__ import annotations

from pyecho import _core

__all__ = ["device_count", "driver_version", "is_available", "why_not"]


def is_available() -> bool:
    """Return whether there is a driver that will do, and a device."""
    return bool(_core.cuda_driver_info()["available"])


def device_count() -> int:
    """Return the number of devices that this process may use; 0 without a driver."""
    return int(_core.cuda_driver_info()["device_count"])


def driver_version() -> tuple[int, int] | None:
    """Return (major, minor) of the newest CUDA the driver supports; None without a driver."""
    version = int(_core.cuda_driver_info()["version"])
    return (version // 1000, version % 1000 // 10) if version else None


def why_not() -> str:
    """Return what is missing and how to get it, or "" if CUDA is available."""
    return str(_core.cuda_driver_info()["explanation"])
