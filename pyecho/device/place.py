"""Devices: the options that name one, whether it is there, and streams on it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from pyecho import cuda
from pyecho._core import ConfigError, CudaError
from pyecho.checked import checked_int
from pyecho.config import Config


@dataclass
class DeviceOptions:
    """Options of a loader about its device, checked; `pyecho.torch.EchoLoader` says what they do.

    Raises `ConfigError` if one is wrong, or needs a device and there is none. Asks no driver.
    """

    device: Any
    """A `torch.device` in the end; None is the host."""
    echo_on: Literal["host", "device"]
    device_dtype: torch.dtype | None
    device_augment: Callable[[Any, torch.Generator], Any] | None
    max_device_bytes: int | None

    def __post_init__(self) -> None:
        """Check everything."""
        dtype, augment, limit = self.device_dtype, self.device_augment, self.max_device_bytes
        if self.echo_on not in ("host", "device"):
            raise ConfigError(f"echo_on must be 'host' or 'device', got {self.echo_on!r}")
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise ConfigError(f"device_dtype must be a torch.dtype or None, got {dtype!r}")
        if augment is not None and not callable(augment):
            raise ConfigError(
                f"device_augment must be a function of (batch, generator), got {augment!r}"
            )
        if limit is not None:
            self.max_device_bytes = checked_int("max_device_bytes", limit, 0, 2**63 - 1)
        self.device = named_device(self.device)
        asked = {
            "echo_on='device'": self.echo_on == "device",
            "device_dtype": dtype is not None,
            "device_augment": augment is not None,
            "max_device_bytes": limit is not None,
        }
        for name, is_set in asked.items():
            if is_set and self.device is None:
                raise ConfigError(f"{name} needs a device, such as device='cuda'")

    def check(self, config: Config) -> None:
        """Raise `ConfigError` if the other options of the loader do not fit."""
        if self.echo_on == "host":
            return
        if config.batch_size is None:
            raise ConfigError(
                "echo_on='device' echoes examples, so it needs a batch_size; batch echoing copies "
                "every item once without it"
            )
        if config.ops is not None:
            raise ConfigError(
                "ops work on the way from a pool in host memory to a batch, and with "
                "echo_on='device' the pool is on the device; use device_augment=, or echo_on='host'"
            )
        if config.pace is not None:
            raise ConfigError(
                "factor='auto' paces a pool in host memory; with echo_on='device' pass a number or "
                "an Adaptive, or echo_on='host'"
            )
        for name in ("augment", "augment_example", "collate_fn"):
            if getattr(config, name) is not None:
                raise ConfigError(
                    f"{name} works on batches in host memory, and with echo_on='device' there are "
                    "none; use device_augment=, or echo_on='host'"
                )


def named_device(device: Any) -> torch.device | None:
    """Return the device that a loader's `device` names; None for the host. Asks no driver.

    Raises `ConfigError` for everything else.
    """
    found = None if device is None else _read(device)
    if device is None or (found is not None and found.type == "cpu"):
        return None
    if found is None or found.type != "cuda":
        raise ConfigError(
            f"device must be a CUDA device or the CPU, got {device!r}; pass 'cuda', 'cuda:0', the "
            "number of a CUDA device, a torch.device, or 'cpu' (None) to leave batches on the host"
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

    Loads the driver. Raises `CudaError` where CUDA is missing, `ConfigError` if this device is.
    """
    reason = cuda.why_not()
    if not reason and not torch.cuda.is_available():
        reason = (
            f"this build of PyTorch ({torch.__version__}) cannot use it; install one with CUDA "
            "from pytorch.org"
        )
    if reason:
        raise CudaError(f"device={str(device)!r} needs CUDA: {reason}")
    count = torch.cuda.device_count()
    number = torch.cuda.current_device() if device.index is None else device.index
    if number >= count:
        raise ConfigError(
            f"device={str(device)!r} is not there: this process sees {count} CUDA "
            f"device{'s' * (count != 1)}, numbered from 0; pass one of them, or make more visible "
            "(CUDA_VISIBLE_DEVICES)"
        )
    return torch.device("cuda", number)


def stream_lent_to(owner: object, device: torch.device) -> Any:
    """Return a stream for the work of `owner`, which another one gets once that is gone.

    Work that waits for one consumer does not hold up that for another, so nothing is under way on a
    stream that is lent again.
    """
    with _making, cuda.relaxed_capture():
        free = _free.setdefault(device, [])
        stream = next((each for each in free if each.query()), None)
        if (
            stream is None
        ):  # the driver's, since PyTorch would lend one of its own to others as well
            made = cuda.new_stream(device.index)
            stream = torch.cuda.ExternalStream(made, device=device)  # type: ignore[no-untyped-call]
        else:
            free.remove(stream)
    weakref.finalize(owner, free.append, stream).atexit = False
    return stream


@contextmanager
def on_stream(device: torch.device, stream: Any) -> Iterator[None]:
    """Have the calling thread allocate and compute on a stream."""
    # Leaving a stream of another device would make a context on the thread's device 0.
    with cuda.relaxed_capture(), torch.cuda.device(device), torch.cuda.stream(stream):
        yield


_making = threading.Lock()
_free: dict[torch.device, list[Any]] = {}
