"""Uploads: items go to a device while the consumer computes, each at most once."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from pyecho._core import Transfer, TransferEngine
from pyecho.device.torch import TorchDevice
from pyecho.nest import map_nest

DEPTH = 2
"""Uploads under way at a time: one is copied while the next is being issued."""


class Uploaded(NamedTuple):
    """An item on the device, or on its way there."""

    item: Any
    tensors: list[Any]
    """The leaves of the item that are on the device, in order."""
    transfer: Transfer
    """Done when they may be read."""


class Uploader:
    """Copies up to `ahead` items to a device before they are asked for, on pyecho's stream.

    One thread uploads, another one delivers.
    """

    def __init__(self, device: TorchDevice, ahead: int) -> None:
        self.device = device
        # Besides those ahead: one being made, one at the consumer, and a mark for each kind.
        self._engine = TransferEngine(device=device.ordinal, depth=DEPTH, kept=ahead + 4)
        device.compute_on(self._engine.stream)

    @property
    def h2d_bytes(self) -> int:
        """Bytes copied to the device so far."""
        return self._engine.bytes

    def copy(self, item: Any) -> Uploaded:
        """Start copying the arrays of `item` as they are, and return.

        The host memory is read later: it is kept alive until then, and must not be modified.
        Waits while `DEPTH` copies are under way.
        """
        sources: list[Any] = []
        copies: list[tuple[int, int, int]] = []
        tensors: list[Any] = []

        def place(leaf: Any) -> Any:
            placed = self.device.place(leaf)
            if placed is None:
                return leaf
            source, address, tensor = placed
            sources.append(source)
            copies.append((tensor.data_ptr(), address, tensor.nbytes))
            tensors.append(tensor)
            return tensor

        item = map_nest(place, item)
        return Uploaded(item, tensors, self._engine.start(copies, sources))

    def computed(self, item: Any, tensors: list[Any]) -> Uploaded:
        """Return an item whose `tensors` were computed on pyecho's stream, to be delivered."""
        return Uploaded(item, tensors, self._engine.mark())

    def upload(self, item: Any) -> Uploaded:
        """Copy the arrays of `item`, and convert them."""
        uploaded = self.copy(item)
        new = {id(tensor): self.device.convert(tensor) for tensor in uploaded.tensors}
        if all(map(operator.is_, new.values(), uploaded.tensors)):
            return uploaded
        item = map_nest(lambda leaf: new.get(id(leaf), leaf), uploaded.item)
        return self.computed(item, list(new.values()))

    def deliver(self, uploaded: Uploaded, number: int = 0, use: int = 0) -> Any:
        """Return the item, fit for the calling thread's current stream. Never blocks."""
        uploaded.transfer.wait_on(self.device.current_stream())
        for tensor in uploaded.tensors:
            self.device.hand_over(tensor)
        return uploaded.item
