"""Memory on the device for what will come, of the stream of the thread that takes it."""

from __future__ import annotations

from typing import Any

import torch

from pyecho.device.leaves import new_memory

SPARE_BYTES, SMALL_BYTES, SPARE_BYTES_OF_SMALL = 2 << 20, 256 << 10, 16 << 20
"""At most so much memory is allocated at once for later batches, while there is enough.

`next()` seldom lets go of the GIL then. Beside a thread of plain Python each time costs 5 ms, after
which Python switches threads. That is most for small batches, of which there are many a second.
"""
MOST_SIZES = 16
"""Sizes of which there is spare memory."""


class Spares:
    """Memory of one thread's, of its current stream; with `ahead` also for later batches."""

    def __init__(self, device: torch.device, *, ahead: bool) -> None:
        self._device = device
        self._ahead = ahead
        self._stream: Any = None
        self._spare: dict[int, list[Any]] = {}
        self._at_once: dict[int, int] = {}

    def take(self, size_bytes: int, stream: torch.cuda.Stream) -> Any:
        """Return memory of the current stream."""
        is_other = (
            self._stream is None or stream != self._stream
        )  # None and a stream are not unequal
        if is_other or len(self._spare) > MOST_SIZES:
            self._stream, self._spare, self._at_once = stream, {}, {}
        spare = self._spare.setdefault(size_bytes, [])
        if not spare:
            count = self._at_once.get(size_bytes, 1)
            spare += new_memory(count, size_bytes, self._device)
            if len(spare) < count:  # PyTorch has emptied its cache to find more
                self._ahead, self._at_once = False, {}
            if self._ahead:
                most = SPARE_BYTES_OF_SMALL if size_bytes <= SMALL_BYTES else SPARE_BYTES
                most //= len(self._spare) * max(1, size_bytes)
                self._at_once[size_bytes] = max(1, min(2 * count, most))
        return spare.pop()

    def give_back(self, memory: Any, size_bytes: int, stream: torch.cuda.Stream) -> None:
        """Take memory back that no tensor shares; what follows on its stream may use it."""
        if self._ahead and self._stream is not None and stream == self._stream:
            self._spare.setdefault(size_bytes, []).append(memory)
