"""Devices: the record that names one, whether it is there, and streams on it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

import numpy as np
import torch

from pyecho import cuda
from pyecho._core import ConfigError, CudaError
from pyecho.checked import checked_int, with_checked_names
from pyecho.config import Config


@dataclass(frozen=True)
class Device:
    """A device for the batches of a loader, and what happens there.

    ::

        there = Device("cuda:0", echo=True, dtype=torch.bfloat16, augment=flip, max_bytes=8 << 30)
        loader = pyecho.torch.EchoLoader(source, 4, batch_size=256, device=there)

    Asks no driver: the loader's first batch loads it.

    Parameters
    ----------
    device
        ``"cuda:0"``, its number, or a `torch.device`; None or ``"cpu"`` leaves batches on the host.
        The record has a `torch.device`, or None for the host.
    echo
        Example echoing: copy every example once into a pool on the device, and assemble the same
        batches there. False: batches are assembled in pinned memory, and every batch is copied.
        Batch echoing copies every item once in any case.
    dtype
        Dtype to convert tensors to on the device, so that smaller ones cross the link: those of
        uint8 or floating point numbers with axes of their own (batches of images, not of labels).
    augment
        ``augment(batch, generator)`` is called on every use, in one thread of pyecho's and on its
        stream, after the conversion; what it returns is what the loader yields. The
        `torch.Generator` draws on the device and is seeded by (seed, epoch, number of the batch).
    max_bytes
        Bound of the device memory for the pool, and for batches (in batch echoing items) that wait
        for the consumer, as large as the first item says; what is in work comes on top.

    Raises
    ------
    ConfigError
        If an argument is wrong, or needs a device and there is none.
    """

    device: Any
    _: KW_ONLY
    echo: bool = False
    dtype: torch.dtype | None = None
    augment: Callable[[Any, torch.Generator], Any] | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        """Check everything."""
        if not isinstance(self.echo, bool | np.bool_):
            raise ConfigError(f"Device(echo=) must be True or False, got {self.echo!r}")
        if self.dtype is not None and not isinstance(self.dtype, torch.dtype):
            raise ConfigError(f"Device(dtype=) must be a torch.dtype or None, got {self.dtype!r}")
        if self.augment is not None and not callable(self.augment):
            raise ConfigError(
                f"Device(augment=) must be a function of (batch, generator), got {self.augment!r}"
            )
        if self.max_bytes is not None:
            limit = checked_int("Device(max_bytes=)", self.max_bytes, 0, 2**63 - 1)
            object.__setattr__(self, "max_bytes", limit)
        object.__setattr__(self, "echo", bool(self.echo))
        object.__setattr__(self, "device", named_device(self.device))
        for option in fields(self)[1:]:
            if self.device is None and getattr(self, option.name) is not option.default:
                raise ConfigError(f"Device({option.name}=) needs a device, such as 'cuda'")


Device.__init__ = with_checked_names(Device.__init__)  # type: ignore[method-assign]


def check_options(there: Device, config: Config) -> None:
    """Raise `ConfigError` if the other options of a loader do not fit."""
    if config.pin_memory and there.device is None:
        if config.batch_size is None:
            raise ConfigError(
                "pin_memory=True makes batches of examples in pinned memory, and in batch echoing "
                "the source makes them; have it pin them, as DataLoader(pin_memory=True) does, or "
                "pass device="
            )
        if config.collate_fn is not None:
            raise ConfigError(
                "pin_memory=True makes batches of arrays in pinned memory, and collate_fn makes "
                "its own; have it pin them (tensor.pin_memory()), or pass device="
            )
    if not there.echo:
        return
    if config.batch_size is None:
        raise ConfigError(
            "Device(echo=True) echoes examples, so it needs a batch_size; batch echoing copies "
            "every item once without it"
        )
    if config.ops is not None:
        raise ConfigError(
            "ops work on the way from a pool in host memory to a batch, and with "
            "Device(echo=True) the pool is on the device; use Device(augment=), or echo=False"
        )
    if config.fields is not None:
        raise ConfigError(
            "fields= is for examples that differ in size, and the pool on the device of "
            "Device(echo=True) has examples of one; crop or pad them in the source, or pass "
            "echo=False"
        )
    for name in ("augment", "augment_example", "collate_fn"):
        if getattr(config, name) is not None:
            raise ConfigError(
                f"{name} works on batches in host memory, and with Device(echo=True) there are "
                "none; use Device(augment=), or echo=False"
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


def is_captured(device: torch.device) -> bool:
    """Return True if the current stream of a device is captured."""
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


@contextmanager
def on_stream(device: torch.device, stream: Any) -> Iterator[None]:
    """Have the calling thread allocate and compute on a stream."""
    # Leaving a stream of another device would make a context on the thread's device 0.
    with cuda.relaxed_capture(), torch.cuda.device(device), torch.cuda.stream(stream):
        yield


_making = threading.Lock()
_free: dict[torch.device, list[Any]] = {}
