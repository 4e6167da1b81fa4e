"""Batches that native threads send to a CUDA device: one block and one copy for all leaves."""

from __future__ import annotations

import ctypes
import re
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pyecho import _core, cuda
from pyecho.device.place import has_cuda_driver, relaxed_capture, stream_on
from pyecho.device.tensors import TorchAdapter, dtype_of, is_numeric
from pyecho.items.spec import Field

_FUNCTIONS = (
    "SetDevice",
    "ThreadExchangeStreamCaptureMode",
    "StreamWaitEvent",
    "MemcpyAsync",
    "EventRecord",
    "EventQuery",
)
"""What `_core.Uploads` calls, in its order."""

_RUNTIME = re.compile(r"/(libcudart|libamdhip64)[^/]*\.so[^/]*$")


class Blocks:
    """Makes blocks for the batches of a stage, on one CUDA device.

    `fields` are the leaves of an example. `dtype`: to convert images and the like to, on the
    consumer's stream.
    """

    def __init__(
        self, device: torch.device, fields: list[Field], *, dtype: torch.dtype | None = None
    ) -> None:
        self.device = device
        self.stream = stream_on(device, "copies")
        self.uploads = _core.Uploads(functions() or (), device.index, self.stream.cuda_stream)
        with relaxed_capture(), torch.cuda.device(device), torch.cuda.stream(self.stream):
            self.scratch = torch.empty(1, dtype=torch.uint8, device=device)
        self.count = 0  # of blocks, and the bytes of one
        self.block_bytes = 0
        self.offsets: list[int] = []  # of leaves in a batch, in bytes; the stage tells them
        self._leaves = [_leaf(field, dtype) for field in fields]
        self._dtypes = {leaf.dtype for leaf in self._leaves if leaf is not None}

    def new(self, size_bytes: int) -> tuple[int, Block]:
        """Return the address of a new block, and the block."""
        with relaxed_capture():
            block = Block(self, size_bytes)
        self.count, self.block_bytes = self.count + 1, size_bytes
        return block.pinned.data_ptr(), block

    def leaves(self, memory: torch.Tensor, rows: int) -> list[Any]:
        """Return the leaves of a batch in this memory; None for references.

        They are no views of it: views share a counter of changes, so that a change of one leaf
        would make autograd refuse the others.
        """
        made: list[Any] = []
        memories = {dtype: memory.view(dtype) for dtype in self._dtypes}
        for leaf, offset in zip(self._leaves, self.offsets, strict=True):
            if leaf is None:
                made.append(None)
                continue
            shape, begin = (rows, *leaf.shape), offset // leaf.dtype.itemsize
            tensor = memories[leaf.dtype].as_strided(shape, leaf.strides, begin).data
            made.append(tensor if leaf.to is None else tensor.to(leaf.to))
        return made


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
        self._arrived.record(blocks.stream)
        self._next: Any = self._allocated()
        self.go_on()

    @property
    def to(self) -> int:
        """Address on the device."""
        return int(self._there[0].data_ptr())

    @property
    def free_event(self) -> int:
        """The event behind the last use of the memory on the device."""
        return int(self._free.cuda_event)

    @property
    def arrived_event(self) -> int:
        """The event behind the copy."""
        return int(self._arrived.cuda_event)

    def _allocated(self) -> tuple[torch.Tensor, torch.cuda.Stream]:
        """Return new memory on the device, and the stream that it is of."""
        device = self._blocks.device
        size_bytes = -(-self.pinned.nbytes // 64) * 64  # can be viewed as any dtype
        memory = torch.empty(size_bytes, dtype=torch.uint8, device=device)
        return memory, torch.cuda.current_stream(device)

    def leaves(self, rows: int) -> list[Any]:
        """Return the leaves of the batch that was sent, once the current stream reaches them.

        If this or what follows raises, it can be repeated. Then comes `go_on`.
        """
        if self._next is None:  # first, since there may be no memory
            self._next = self._allocated()
        memory, of_stream = self._there
        stream = torch.cuda.current_stream(self._blocks.device)
        stream.wait_event(self._arrived)
        if stream != of_stream:
            memory.record_stream(stream)
        return self._blocks.leaves(memory, rows)

    def send_again(self) -> None:
        """Send the batch, since the native side met an error."""
        stream = self._blocks.stream
        with relaxed_capture(), torch.cuda.device(stream.device), torch.cuda.stream(stream):
            stream.wait_event(self._free)
            self._there[0][: self.pinned.nbytes].copy_(self.pinned, non_blocking=True)
            self._arrived.record(stream)

    def go_on(self) -> int:
        """Leave the batch to the consumer, and return the address for the next one."""
        assert self._next is not None
        memory, stream = self._next
        self._free.record(stream)
        address = int(memory.data_ptr())
        self._there, self._next = self._next, None  # last: Ctrl-C comes in a call
        return address

    def __del__(self) -> None:
        """Have PyTorch keep the memory until copies under way are over."""
        stream = self._blocks.stream
        gone = has_cuda_driver(stream.device) and cuda.why_not()  # in the child of a fork
        if self._there is None or sys.is_finalizing() or gone:
            return
        with suppress(RuntimeError), relaxed_capture():  # the device has failed
            with torch.cuda.device(stream.device), torch.cuda.stream(stream):
                self._blocks.scratch.copy_(self.pinned[:1], non_blocking=True)
            self._there[0].record_stream(stream)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]


class _Leaf(NamedTuple):
    """A leaf of an example on the device."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # of a batch
    to: torch.dtype | None  # to convert it to


def _leaf(field: Field, dtype: torch.dtype | None) -> _Leaf | None:
    """Return what a field is there; None for references."""
    if field.by_reference:
        return None
    own = dtype_of(field.dtype)
    strides = torch.empty((1, *field.shape), device="meta").stride()
    return _Leaf(own, field.shape, strides, dtype if field.shape and is_numeric(own) else None)


@cache
def functions() -> list[int] | None:
    """Return the functions of `_core.Uploads` in the runtime that PyTorch has loaded, else None."""
    names = [f"{'hip' if torch.version.hip else 'cuda'}{name}" for name in _FUNCTIONS]
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    found = [line.split(maxsplit=5)[-1] for line in lines if _RUNTIME.search(line)]
    for path in dict.fromkeys(found):
        library = ctypes.CDLL(path)
        if all(hasattr(library, name) for name in names):
            addresses = [ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in names]
            return [address.value or 0 for address in addresses]
    return None
