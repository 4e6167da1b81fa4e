"""Batches that native threads send to a CUDA device: one block and one copy for all leaves."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import torch

from pyecho import _core, cuda
from pyecho._core import ConfigError, EchoError
from pyecho.device.leaves import aligned, leaf_of, leaves_in, new_memory
from pyecho.device.place import on_stream, stream_lent_to
from pyecho.device.runtime import record, wait
from pyecho.device.tensors import TorchAdapter, dtype_of, is_image
from pyecho.items.spec import Field

SPARE_BYTES, SMALL_BYTES, SPARE_BYTES_OF_SMALL = 2 << 20, 256 << 10, 16 << 20
"""At most so much memory is allocated at once for later batches, while there is enough.

`next()` seldom lets go of the GIL then. Beside a thread of plain Python each time costs 5 ms, after
which Python switches threads. That is most for small batches, of which there are many a second.
"""


class Blocks:
    """Makes blocks for the batches of a stage, on one CUDA device.

    `fields` are the leaves of an example. `dtype`: to convert images and the like to, on the
    consumer's stream. `limit`: of the bytes of all blocks on the device. `spares`: without a limit,
    memory for later batches is allocated at once.
    """

    def __init__(
        self,
        device: torch.device,
        runtime: _core.Runtime,
        fields: list[Field],
        *,
        dtype: torch.dtype | None = None,
        limit: int | None = None,
        spares: bool = True,
    ) -> None:
        self.device = device
        self.stream = stream_lent_to(self, device)
        self.uploads = _core.Uploads(runtime, device.index, self.stream.cuda_stream)
        with on_stream(device, self.stream), torch.inference_mode(False):
            self.scratch = torch.empty(1, dtype=torch.uint8, device=device)
        self.size_bytes = 0  # of all blocks on the device
        self.count = 0
        self._limit = limit
        self._dtype = dtype
        self._fields = fields
        self._leaves: list[Any] = []  # None for references
        self._spare: list[tuple[_core.TorchMemory, torch.cuda.Stream]] = []
        self._at_once = 1
        self._may_spare = spares and limit is None

    def place(self, offsets: list[int]) -> None:
        """Tell where the leaves of a batch begin, in bytes."""
        self._leaves = [
            None if field.by_reference else leaf_of(dtype_of(field.dtype), field.shape, offset)
            for field, offset in zip(self._fields, offsets, strict=True)
        ]

    def new(self, size_bytes: int) -> tuple[int, Block]:
        """Return the address of a new block for a batch of so many bytes, and the block."""
        self.count, self.size_bytes = self.count + 1, self.size_bytes + aligned(size_bytes)
        if self._limit is not None and self.size_bytes > self._limit:
            raise ConfigError(
                f"{self.count} batches of {size_bytes} bytes, and more, would be kept on "
                f"{self.device}, but Device(max_bytes=) is {self._limit}; lower batch_size "
                "or prefetch, or raise it"
            )
        with cuda.relaxed_capture():
            if _is_captured(self.device):  # nothing could wait for events of a capture
                raise EchoError(
                    "this thread captures a CUDA graph, in which a loader cannot make its memory; "
                    "take the first batch, or load the state, before the capture"
                )
            block = Block(self, size_bytes)
        return block.pinned.data_ptr(), block

    def allocated(
        self, size_bytes: int, stream: torch.cuda.Stream
    ) -> tuple[_core.TorchMemory, torch.cuda.Stream]:
        """Return new memory on the device, and the stream that it is of, the current one."""
        if self._spare and self._spare[0][1] != stream:  # one batch on each stream, perhaps
            self._spare, self._at_once = [], 1
        if not self._spare:
            made = new_memory(self._at_once, size_bytes, self.device)
            self._spare = [(memory, stream) for memory in made]
            if len(made) < self._at_once:  # PyTorch has emptied its cache to find more
                self._may_spare, self._at_once = False, 1
            if self._may_spare:
                spare = SPARE_BYTES_OF_SMALL if size_bytes <= SMALL_BYTES else SPARE_BYTES
                self._at_once = max(1, min(2 * self._at_once, spare // max(1, size_bytes)))
        return self._spare.pop()

    def leaves(self, memory: _core.TorchMemory, rows: int) -> list[Any]:
        """Return the leaves of a batch in this memory; None for references."""
        made = leaves_in(memory, [leaf for leaf in self._leaves if leaf], rows)
        found = [self._converted(leaf) for leaf in made]
        memory.is_shared = any(leaf is there for leaf, there in zip(found, made, strict=True))
        leaves = iter(found)
        return [leaf and next(leaves) for leaf in self._leaves]

    def _converted(self, leaf: torch.Tensor) -> torch.Tensor:
        return leaf if self._dtype is None or not is_image(leaf) else leaf.to(self._dtype)


class Block:
    """Pinned memory for a batch, and memory on the device to which the next one will be copied.

    The native stage fills the one, sends it to the other, and asks for its `leaves` once the
    consumer takes the batch. Memory on the device is allocated by the consumer, on its stream: so
    what it drops is memory of its stream again at once.
    """

    __slots__ = ("_arrived", "_blocks", "_free", "_next", "_there", "pinned")

    def __init__(self, blocks: Blocks, size_bytes: int) -> None:
        self._blocks = blocks
        self._there: Any = None
        self.pinned = TorchAdapter.allocate(size_bytes)
        self._free, self._arrived = _event(), _event()
        with on_stream(blocks.device, blocks.stream):  # PyTorch keeps it until this stream is done
            blocks.scratch.copy_(self.pinned[:1], non_blocking=True)
        self._next: Any = blocks.allocated(
            aligned(size_bytes), torch.cuda.current_stream(blocks.device)
        )
        self._arrived.record(blocks.stream)  # makes the event
        self._free.record(self._next[1])
        self.go_on()

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
            self._next = self._blocks.allocated(aligned(self.pinned.nbytes), stream)
        return self._blocks.leaves(memory, rows)

    def send_again(self) -> None:
        """Send the batch, since the native side met an error."""
        stream, memory = self._blocks.stream, self._there[0].tensor()
        with on_stream(self._blocks.device, stream):
            stream.wait_event(self._free)
            memory[: self.pinned.nbytes].copy_(self.pinned, non_blocking=True)
            self._arrived.record(stream)

    def go_on(self) -> int:
        """Leave the batch to the consumer, and return the address for the next one."""
        memory, stream = self._next
        record(self._free, stream)
        address = int(memory.address)
        self._there, self._next = self._next, None  # last: Ctrl-C comes in a call
        return address

    def __del__(self) -> None:
        """Have PyTorch keep the memory on the device until copies under way are over."""
        if self._there is None or sys.is_finalizing():
            return
        memory = self._there[0]
        memory.is_shared = False  # with leaves of a batch that was never handed out
        with suppress(RuntimeError):  # the device has failed
            memory.tensor().record_stream(self._blocks.stream)


def _is_captured(device: torch.device) -> bool:
    """Return True if the current stream of a device is captured."""
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]
