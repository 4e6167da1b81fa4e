"""A device that is host memory, for what is the same on every device: order, epochs, errors.

Effects of streams, pinned memory and late copies are tested on a device, in tests/gpu.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import ClassVar

import numpy as np
import torch

from pyecho.device.handover import HandOver
from pyecho.items.nest import leaves_of
from pyecho.torch import Device

ECHOING = Device("cuda:0", echo=True)
HALVES = Device("cuda:0", dtype=torch.float16)
WAYS = {
    "batches": {},
    "examples": {"batch_size": 4},
    "on the device": {"batch_size": 4, "device": ECHOING, "shuffle_buffer": 6},
    "converted": {"batch_size": 4, "device": HALVES},
    "augmented": {"batch_size": 4, "augment": lambda batch, rng: batch, "augment_workers": 3},
}
WAYS = {way: {"device": "cuda:0"} | more for way, more in WAYS.items()}
"""Arguments of loaders whose batches go to the device in different ways."""


class OnDevice(torch.Tensor):
    """A tensor on the device."""

    def cpu(self):
        return self.as_subclass(torch.Tensor)

    def record_stream(self, stream):
        pass


def there(tensor):
    """Return a tensor on the device: that of this machine, or host memory in its place."""
    return tensor.cuda() if torch.cuda.is_available() else tensor.as_subclass(OnDevice)


class HostStream:
    """A stream of a device that has done all work when a call returns, or an event on it."""

    cuda_event = 0

    def wait_event(self, event):
        pass

    def record(self, stream):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass


def as_the_device(monkeypatch):
    """Have loaders take host memory for their device."""
    stream = HostStream()
    for name, made in {
        "pipeline.present_device": lambda device: device,
        "pipeline.runtime": lambda: None,
        "pipeline.HandOver": HostHandOver,
        "handover.stream_lent_to": lambda owner, device: HostStream(),
        "handover.new_memory": _new_memory,
        "memory.new_memory": _new_memory,
        "handover.copy": _copy,
        "handover.copy_by_torch": _copy,
        "pinned.PinnedMemory.leave": lambda memory, block: None,
    }.items():
        monkeypatch.setattr(f"pyecho.device.{name}", made)
    monkeypatch.setattr("torch.cuda.Event", lambda **options: stream)


def _new_memory(count, size_bytes, device):
    return [torch.empty(size_bytes, dtype=torch.uint8).as_subclass(OnDevice)]


def _copy(to, source, size_bytes, stream):
    """Copy at once, to other host memory."""
    HostHandOver.copies += 1
    if HostHandOver.copies == HostHandOver.failing:
        raise RuntimeError("CUDA error: the copy failed")
    to[:size_bytes] = source[:size_bytes]


class HostHandOver(HandOver):
    """Hands over to host memory."""

    made: ClassVar[list[HostHandOver]] = []
    copies = 0
    failing = 0
    """The copy that fails, from 1; 0: none."""

    consumer = HostStream()

    def __init__(self, device, **options):
        super().__init__(device, **options)
        self.made.append(self)

    def computing(self):
        return nullcontext()

    def _current(self):
        return self.consumer

    _default = _current

    def _is_captured(self):
        return False

    def is_there(self, leaf):
        return isinstance(leaf, OnDevice)


def plain(emissions):
    """Return emissions as comparable values: types, dtypes, shapes and bits."""
    return [(_kind_of(each), *map(_plain_leaf, leaves_of(each))) for each in emissions]


def _kind_of(emission):
    return torch.Tensor if isinstance(emission, torch.Tensor) else type(emission)


def _plain_leaf(leaf):
    if isinstance(leaf, torch.Tensor):
        bits = leaf.cpu().contiguous().reshape(-1).view(torch.uint8) if leaf.numel() else leaf
        return str(leaf.dtype), tuple(leaf.shape), bits.tolist()
    if isinstance(leaf, np.ndarray):
        return str(leaf.dtype), leaf.shape, leaf.tolist()
    return leaf
