"""Numbers of slots, which go to the device with every batch of a pool there."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any

import torch

from pyecho._core import CudaError
from pyecho.device.tensors import TorchAdapter
from pyecho.device.upload import Uploader

RING = 4
"""Copies under way until the next one waits."""


class Indices:
    """Sends at most `most` numbers at a time from and to memory of its own, more through PyTorch.

    Memory of PyTorch's for each would take three times the calls. See `Uploader.computing`.
    """

    def __init__(self, uploader: Uploader, most: int) -> None:
        self._uploader = uploader
        self._most = most
        self._there: Any = None
        self._ring: deque[tuple[torch.Tensor, Any]] = deque()  # pinned, marks behind copies of it

    def send(self, numbers: Any) -> torch.Tensor:
        """Return an array of int64 as a tensor on the device, valid until the next call there."""
        if not self._ring or len(numbers) > self._most:
            found: torch.Tensor = self._uploader.copy(numbers)
            if self._there is None:
                self._there = found.new_empty(self._most)
                self._make_ring(self._there)
            return found
        memory, mark = self._ring.popleft()  # for good, if what follows raises
        mark.synchronize()
        pinned, there = (each.narrow(0, 0, len(numbers)) for each in (memory, self._there))
        pinned.numpy()[:] = numbers
        self._ring.append((memory, self._uploader.copy_into(there, pinned)))
        return there

    def _make_ring(self, there: torch.Tensor) -> None:
        with suppress(CudaError):  # no more can be pinned
            for _ in range(RING):
                pinned = TorchAdapter.allocate(there.nbytes).view(torch.int64)
                # From now on PyTorch keeps it until the stream is done with it.
                there.copy_(pinned, non_blocking=True)
                self._ring.append((pinned, self._uploader.arrival()))
