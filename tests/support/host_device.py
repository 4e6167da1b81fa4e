"""A device that is host memory, for what is the same on every device: order, epochs, errors.

Effects of streams, pinned memory and late copies are tested on a device, in tests/gpu.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import ClassVar

import torch

from pyecho.device.torch import host_tensor
from pyecho.device.upload import Uploaded, Uploader

WAYS = {
    "batches": {},
    "examples": {"batch_size": 4},
    "on the device": {"batch_size": 4, "echo_on": "device", "shuffle_buffer": 6},
    "converted": {"batch_size": 4, "device_dtype": torch.float16},
    "augmented": {"batch_size": 4, "augment": lambda batch, rng: batch, "augment_workers": 3},
}
"""Arguments of loaders whose batches go to the device in different ways."""


class HostUploader(Uploader):
    """Copies at once, to other host memory."""

    made: ClassVar[list[HostUploader]] = []
    copies = 0
    failing = 0
    """The copy that fails, from 1; 0: none."""

    def __init__(self, device, dtype=None):
        super().__init__(device, dtype)
        self.made.append(self)

    @contextmanager
    def computing(self):
        yield

    def copy(self, leaf):
        host = host_tensor(leaf)
        if host is None:
            return None
        self.copies += 1
        if self.copies == self.failing:
            raise RuntimeError("CUDA error: the copy failed")
        tensor = host.clone(memory_format=torch.contiguous_format)
        self.h2d_bytes += tensor.nbytes
        return tensor

    def computed(self, item, tensors):
        return Uploaded(item, tensors, None)

    def deliver(self, uploaded, number=0, use=0):
        return uploaded.item
