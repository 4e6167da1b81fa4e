"""Batches that native threads send to a CUDA device: one block and one copy for all leaves."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pyecho import _core, cuda
from pyecho.device.place import has_cuda_driver, relaxed_capture, stream_on
from pyecho.device.quiet import View, quiet
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
        addresses = functions() or ()
        self.uploads = _core.Uploads(addresses, device.index, self.stream.cuda_stream)
        with self.copying():
            self.scratch = torch.empty(1, dtype=torch.uint8, device=device)
        self.count = 0  # of blocks, and the bytes of one
        self.block_bytes = 0
        self.offsets: list[int] = []  # of leaves in a batch, in bytes; the stage tells them
        self._leaves = [_leaf(field, dtype) for field in fields]
        dtypes = {leaf.dtype for leaf in self._leaves if leaf is not None}
        self.quiet = quiet((torch.uint8, *dtypes))
        # These keep the GIL, too. They are for threads whose current device this is.
        self._wait = ctypes.PYFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2, ctypes.c_uint)(
            addresses[_FUNCTIONS.index("StreamWaitEvent")]
        )
        self._record = ctypes.PYFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2)(
            addresses[_FUNCTIONS.index("EventRecord")]
        )

    def new(self, size_bytes: int) -> tuple[int, Block]:
        """Return the address of a new block, and the block."""
        with relaxed_capture():
            block = Block(self, size_bytes)
        self.count, self.block_bytes = self.count + 1, size_bytes
        return block.pinned.data_ptr(), block

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Let the calling thread copy on pyecho's stream, in whatever mode it is."""
        device, stream = torch.cuda.device(self.device), torch.cuda.stream(self.stream)
        with relaxed_capture(), device, stream, torch.inference_mode(False):
            yield

    def wait(self, stream: Any, event: Any) -> None:
        """Have a stream wait for an event."""
        there = torch.cuda.current_device() == self.device.index
        if not there or self._wait(stream.cuda_stream, event.cuda_event, 0):
            stream.wait_event(event)  # says why, if it fails again

    def record(self, stream: Any, event: Any) -> None:
        """Record an event."""
        there = torch.cuda.current_device() == self.device.index
        if not there or self._record(event.cuda_event, stream.cuda_stream):
            event.record(stream)

    def leaves(self, memory: torch.Tensor, rows: int) -> list[Any]:
        """Return the leaves of a batch in this memory; None for references.

        They are no views of it: views share a counter of changes, so that a change of one leaf
        would make autograd refuse the others.
        """
        views = [
            View(leaf.dtype, (rows, *leaf.shape), leaf.strides, offset)
            for leaf, offset in zip(self._leaves, self.offsets, strict=True)
            if leaf is not None
        ]
        tensors = None if self.quiet is None else self.quiet.views(memory, views)
        if tensors is None:
            tensors = [
                memory.view(view.dtype)
                .as_strided(view.shape, view.strides, view.begin // view.dtype.itemsize)
                .data
                for view in views
            ]
        made = iter(tensors)
        return [leaf and _converted(next(made), leaf.to) for leaf in self._leaves]


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
        self._free.record(self._next[1])  # makes the event
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
        size_bytes = -(-self.pinned.nbytes // 64) * 64  # can be viewed as any dtype
        device = self._blocks.device
        with torch.inference_mode(False):  # what is made in it cannot be written to outside of it
            memory = torch.empty(size_bytes, dtype=torch.uint8, device=device)
        return memory, torch.cuda.current_stream(device)

    def leaves(self, rows: int) -> list[Any]:
        """Return the leaves of the batch that was sent, once the current stream reaches them.

        If this or what follows raises, it can be repeated. Then comes `go_on`.
        """
        memory, of_stream = self._there
        stream = torch.cuda.current_stream(self._blocks.device)
        self._blocks.wait(stream, self._arrived)  # first, as it cannot be captured
        if stream != of_stream:
            memory.record_stream(stream)
        if self._next is None:  # before the rest, since there may be no memory
            self._next = self._allocated()
        return self._blocks.leaves(memory, rows)

    def send_again(self) -> None:
        """Send the batch, since the native side met an error."""
        stream = self._blocks.stream
        with self._blocks.copying():
            stream.wait_event(self._free)
            self._there[0][: self.pinned.nbytes].copy_(self.pinned, non_blocking=True)
            self._arrived.record(stream)

    def go_on(self) -> int:
        """Leave the batch to the consumer, and return the address for the next one."""
        assert self._next is not None
        memory, stream = self._next
        self._blocks.record(stream, self._free)
        address = int(memory.data_ptr())
        self._there, self._next = self._next, None  # last: Ctrl-C comes in a call
        return address

    def __del__(self) -> None:
        """Have PyTorch keep the memory until copies under way are over."""
        stream = self._blocks.stream
        gone = has_cuda_driver(stream.device) and cuda.why_not()  # in the child of a fork
        if self._there is None or sys.is_finalizing() or gone:
            return
        with suppress(RuntimeError):  # the device has failed
            self._there[0].record_stream(stream)
        with suppress(RuntimeError), self._blocks.copying():
            self._blocks.scratch.copy_(self.pinned[:1], non_blocking=True)


def _converted(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    return tensor if dtype is None else tensor.to(dtype)


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
