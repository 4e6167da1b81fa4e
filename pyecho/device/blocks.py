"""Batches that native threads send to a CUDA device: one block and one copy for all leaves."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import torch

from pyecho import _core, cuda
from pyecho._core import ConfigError, EchoError
from pyecho.device.handover import HandOver
from pyecho.device.leaves import Leaf, aligned, leaf_of, tensor_of
from pyecho.device.place import is_captured, on_stream
from pyecho.device.runtime import copy_by_torch, record, wait
from pyecho.device.tensors import TorchAdapter, dtype_of
from pyecho.items.spec import Field


class Blocks:
    """Makes blocks for the batches of a stage, on one CUDA device.

    `fields` are the leaves of an example. `dtype`: to convert images and the like to, on the
    consumer's stream.
    """

    def __init__(
        self,
        handover: HandOver,
        runtime: _core.Runtime,
        dtype: torch.dtype | None,
        fields: list[Field],
    ) -> None:
        self.handover = handover
        self.device, self.stream = handover.device, handover.stream
        self.uploads = _core.Uploads(runtime, self.device.index, self.stream.cuda_stream)
        with on_stream(self.device, self.stream), torch.inference_mode(False):
            self.scratch = torch.empty(1, dtype=torch.uint8, device=self.device)
        self.size_bytes = 0  # of all blocks on the device
        self.count = 0
        self._pinned: list[torch.Tensor] = []  # for the next blocks
        self._dtype = dtype
        self._fields = fields
        self._offsets: list[int] = []
        self._rows = -1  # of the batch whose leaves are `_there`
        self._there: list[Leaf] = []

    def place(self, offsets: list[int]) -> None:
        """Tell where the leaves of a batch begin, in bytes."""
        self._offsets = offsets

    def new(self, size_bytes: int) -> tuple[int, Block]:
        """Return the address of a new block for a batch of so many bytes, and the block."""
        self.count, self.size_bytes = self.count + 1, self.size_bytes + aligned(size_bytes)
        limit = self.handover.limit
        if limit is not None and self.size_bytes > limit:
            raise ConfigError(
                f"{self.count} batches of {size_bytes} bytes, and more, would be kept on "
                f"{self.device}, but Device(max_bytes=) is {limit}; lower batch_size "
                "or prefetch, or raise it"
            )
        with cuda.relaxed_capture():
            if is_captured(self.device):  # nothing could wait for events of a capture
                raise EchoError(
                    "this thread captures a CUDA graph, in which a loader cannot make its memory; "
                    "take the first batch, or load the state, before the capture"
                )
            block = Block(self, size_bytes)
        return block.pinned.data_ptr(), block

    def pinned(self, size_bytes: int) -> torch.Tensor:
        """Return pinned memory. PyTorch rounds up to powers of two: three may take that of two."""
        if not self._pinned or self._pinned[-1].nbytes != size_bytes:
            step = aligned(size_bytes)
            count = 3 if 3 * step <= 2 << (step - 1).bit_length() else 1
            memory = TorchAdapter.allocate(count * step)
            self._pinned = [memory[n * step :][:size_bytes] for n in range(count)]
        return self._pinned.pop()

    def leaves(self, memory: Any, rows: int, stream: Any) -> tuple[list[Any], bool]:
        """Return the leaves of a batch in memory, None for references; True if it is free."""
        if rows != self._rows:  # seldom: the last batch of an epoch may have fewer
            self._there = [
                leaf_of(dtype_of(field.dtype), (rows, *field.shape), offset)
                for field, offset in zip(self._fields, self._offsets, strict=True)
                if not field.by_reference
            ]
            self._rows = rows
        made, is_free = self.handover.leaves(memory, self._there, stream, self._dtype)
        leaves = iter(made)
        return [None if field.by_reference else next(leaves) for field in self._fields], is_free


class Block:
    """Pinned memory for a batch, and memory on the device to which the next one will be copied.

    The native stage fills the one, sends it to the other, and asks for its `leaves` once the
    consumer takes the batch. Memory on the device is allocated by the consumer, on its stream: so
    what it drops is memory of its stream again at once.
    """

    __slots__ = ("_arrived", "_blocks", "_free", "_is_free", "_next", "_there", "pinned")

    def __init__(self, blocks: Blocks, size_bytes: int) -> None:
        self._blocks = blocks
        self._there: Any = None
        self._is_free = False
        self.pinned = blocks.pinned(size_bytes)
        self._free, self._arrived = _event(), _event()
        with on_stream(blocks.device, blocks.stream):  # PyTorch keeps it until this stream is done
            blocks.scratch.copy_(self.pinned[:1], non_blocking=True)
        self._next = self._allocated(torch.cuda.current_stream(blocks.device))
        self._arrived.record(blocks.stream)  # makes the event
        self._free.record(self._next[1])
        self.go_on()

    def _allocated(self, stream: Any) -> Any:
        size_bytes = aligned(self.pinned.nbytes)
        return self._blocks.handover.allocated(size_bytes, stream), stream

    @property
    def to(self) -> int:
        """Address on the device."""
        return int(self._there[0].address)

    @property
    def free_event(self) -> int:
        """The event behind the last use of the memory on the device."""
        return int(self._free.cuda_event)

    @property
    def arrived_event(self) -> int:
        """The event behind the copy."""
        return int(self._arrived.cuda_event)

    def leaves(self, rows: int) -> list[Any]:
        """Return the leaves of the batch that was sent, once the current stream reaches them.

        If this or what follows raises, it can be repeated. Then comes `go_on`.
        """
        memory, of_stream = self._there
        stream = torch.cuda.current_stream(self._blocks.device)
        wait(stream, self._arrived)  # first, as it cannot be captured
        if stream != of_stream:
            memory.tensor().record_stream(stream)
        if self._next is None:  # before the rest, since there may be no memory
            self._next = self._allocated(stream)
        leaves, self._is_free = self._blocks.leaves(memory, rows, stream)
        return leaves

    def send_again(self) -> None:
        """Send the batch, since the native side met an error."""
        stream = self._blocks.stream
        stream.wait_event(self._free)
        copy_by_torch(self._there[0], self.pinned, self.pinned.nbytes, stream)
        self._arrived.record(stream)

    def go_on(self) -> int:
        """Leave the batch to the consumer, and return the address for the next one."""
        memory, stream = self._next
        record(self._free, stream)
        address = int(memory.address)
        before, self._there, self._next = self._there, self._next, None  # last: Ctrl-C in a call
        if self._is_free:
            size_bytes = aligned(self.pinned.nbytes)
            self._blocks.handover.give_back(before[0], size_bytes, before[1])
        return address

    def __del__(self) -> None:
        """Have PyTorch keep the memory on the device until copies under way are over."""
        if self._there is None or sys.is_finalizing():
            return
        memory = self._there[0]
        memory.is_shared = False  # with leaves of a batch that was never handed out
        with suppress(RuntimeError):  # the device has failed
            tensor_of(memory).record_stream(self._blocks.stream)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]
