"""Uploads: items go to a device while the consumer computes, each at most once."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from pyecho._core import Transfer, TransferEngine
from pyecho.nest import map_nest

__all__ = ["DEPTH", "DeviceArrays", "Placed", "Uploaded", "Uploader", "upload_use"]

DEPTH = 2
"""Uploads under way at a time: one is copied while the next is being issued."""


class Placed(NamedTuple):
    """A leaf on its way: where it comes from, and where it goes."""

    source: Any
    """Keeps the host memory alive."""
    source_address: int
    target: Any
    """The device array, allocated for pyecho's stream."""
    target_address: int
    size_bytes: int


class DeviceArrays(Protocol):
    """The device arrays of one library. Sizes are in bytes, streams are CUDA handles."""

    ordinal: int
    """Number of the device."""

    def compute_on(self, stream: int) -> None:
        """Allocate and compute on `stream`, pyecho's own, in all of the following."""

    def place(self, leaf: Any) -> Placed | None:
        """Allocate a device array like `leaf`; None for what does not go to the device."""

    def convert(self, array: Any) -> Any:
        """Return a device array in the dtype that the consumer wants; itself if it has that."""

    def current_stream(self) -> int:
        """Return the stream that the calling thread computes on."""

    def hand_over(self, array: Any) -> None:
        """Tell the allocator that the calling thread's current stream uses `array`."""


class Uploaded(NamedTuple):
    """An item on the device, or on its way there."""

    item: Any
    arrays: list[Any]
    """The leaves of the item that are on the device."""
    transfer: Transfer
    """Done when they may be read."""


class Uploader:
    """Copies items to a device, on pyecho's stream. One thread uploads, another one delivers.

    Parameters
    ----------
    arrays
        The device arrays that items become.
    ahead
        Items that are uploaded ahead of the consumer.
    """

    def __init__(self, arrays: DeviceArrays, ahead: int) -> None:
        self._arrays = arrays
        # Besides those ahead: one being made, one at the consumer, and a mark for each kind.
        self._engine = TransferEngine(device=arrays.ordinal, depth=DEPTH, kept=ahead + 4)
        arrays.compute_on(self._engine.stream)

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
        targets: list[Any] = []

        def place(leaf: Any) -> Any:
            placed = self._arrays.place(leaf)
            if placed is None:
                return leaf
            sources.append(placed.source)
            copies.append((placed.target_address, placed.source_address, placed.size_bytes))
            targets.append(placed.target)
            return placed.target

        item = map_nest(place, item)
        return Uploaded(item, targets, self._engine.start(copies, sources))

    def computed(self, item: Any, arrays: list[Any]) -> Uploaded:
        """Return an item whose `arrays` were computed on pyecho's stream, to be delivered."""
        return Uploaded(item, arrays, self._engine.mark())

    def upload(self, item: Any) -> Uploaded:
        """Copy the arrays of `item`, and convert them."""
        item, arrays, transfer = self.copy(item)
        converted = [self._arrays.convert(array) for array in arrays]
        if all(new is old for new, old in zip(converted, arrays, strict=True)):
            return Uploaded(item, arrays, transfer)
        new_of = {id(old): new for new, old in zip(converted, arrays, strict=True)}
        return self.computed(map_nest(lambda leaf: new_of.get(id(leaf), leaf), item), converted)

    def deliver(self, uploaded: Uploaded, number: int = 0, use: int = 0) -> Any:
        """Return the item, fit for the calling thread's current stream. Never blocks."""
        uploaded.transfer.wait_on(self._arrays.current_stream())
        for array in uploaded.arrays:
            self._arrays.hand_over(array)
        return uploaded.item


def upload_use(
    uploader: Uploader, with_info: bool, emitted: Any, epoch: int, number: int
) -> Uploaded:
    """Upload a batch; its info stays on the host. What a link makes of it."""
    batch, info = emitted if with_info else (emitted, None)
    uploaded = uploader.upload(batch)
    if info is not None:  # a view of the batch's host memory, which goes back now
        info = type(info)(*(column.copy() for column in info))
        uploaded = uploaded._replace(item=(uploaded.item, info))
    return uploaded
