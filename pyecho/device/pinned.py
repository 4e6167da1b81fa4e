"""Items in pinned memory: all leaves of one that go to a device in one block, ready to cross."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from pyecho import _core, cuda
from pyecho._core import CudaError
from pyecho.device.leaves import ALIGNMENT, Leaf, aligned, leaf_of, leaves_in, size_of
from pyecho.device.place import on_stream
from pyecho.device.runtime import passed, record
from pyecho.device.tensors import WORDS, TorchAdapter, host_tensor, is_jagged
from pyecho.warn import warn

SMALLEST_BYTES = 4096


class Mark:
    """A point in the work on a stream. Its event serves another one once nothing refers to it."""

    event: Any = None  # Ctrl-C may come at any time

    def __init__(self, stream: Any, free: deque[Any]) -> None:
        self._free = free
        self._stream = stream
        try:
            self.event = free.pop()
        except IndexError:
            # Waiting for an event that is not blocking takes a processor.
            self.event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        record(self.event, stream)

    def __del__(self) -> None:
        """Give the event back."""
        if self.event is not None:
            self._free.append(self.event)

    def passed(self) -> bool:
        """Return True once this point is reached."""
        return passed(self.event, self._stream)


class PinnedMemory:
    """Blocks of pinned memory, each for one copy after the other. For any threads.

    `stream`: of the copies. `most`: blocks that are kept for later copies. `pin`: False: pageable
    memory instead; None: pageable memory, with a warning, where no more can be pinned.
    """

    _back: Any = ()

    def __init__(self, device: torch.device, stream: Any, most: int, pin: bool | None) -> None:
        self._device = device
        self._stream = stream
        self._pin = pin
        self._most = most
        self._back: deque[tuple[Mark, torch.Tensor]] = deque()

    def take(self, size_bytes: int) -> tuple[torch.Tensor, bool]:
        """Return a block of at least so many bytes, and whether it is pinned."""
        size_bytes = 1 << (max(SMALLEST_BYTES, size_bytes) - 1).bit_length()  # as PyTorch does
        block: torch.Tensor | None
        for mark, block in self._taken():
            if size_bytes <= block.nbytes <= 4 * size_bytes:
                if mark.passed():
                    return block, True
                self._back.appendleft((mark, block))
                break  # those behind it were sent later
            self._drop(mark, block)
        with torch.inference_mode(False):
            block = None if self._pin is False else self._pinned(size_bytes)
            if block is None:
                return torch.empty(size_bytes, dtype=torch.uint8, device="cpu"), False
        return block, True

    def _pinned(self, size_bytes: int) -> torch.Tensor | None:
        try:
            return TorchAdapter.allocate(size_bytes)
        except CudaError as error:
            if self._pin or cuda.why_not():
                raise
            self._pin = False
            warn(
                f"batches are in pageable memory, which makes copies to the device slower: {error}",
                RuntimeWarning,
            )
            return None

    def _taken(self) -> Iterator[tuple[Mark, torch.Tensor]]:
        for _ in range(len(self._back)):
            try:
                yield self._back.popleft()
            except IndexError:  # another thread was quicker
                return

    def give_back(self, block: torch.Tensor, mark: Mark) -> None:
        """Take a block back that may be written to after a mark."""
        self._back.append((mark, block))
        if len(self._back) > self._most:
            for mark_before, before in self._taken():
                if not mark_before.passed():  # then later ones have not, either
                    self._back.appendleft((mark_before, before))
                return

    def _drop(self, mark: Mark, block: torch.Tensor) -> None:
        if not mark.passed():
            self.leave(block)

    def leave(self, block: torch.Tensor) -> None:
        """Have PyTorch keep a block until the copies on the stream are over."""
        with torch.inference_mode(False), on_stream(self._device, self._stream):
            there = torch.empty(1, dtype=torch.uint8, device=self._device)
            there.copy_(block[:1], non_blocking=True)

    def __del__(self) -> None:
        """Leave all blocks."""
        if not sys.is_finalizing():
            with suppress(RuntimeError):  # the device has failed
                for old in self._taken():
                    self._drop(*old)


class Packed:
    """Host tensors side by side in one block. Each column is one, or several to be one of."""

    __slots__ = ("block", "is_pinned", "leaves", "memory", "sent_bytes", "size_bytes")

    def __init__(self, columns: Sequence[Sequence[torch.Tensor]], memory: PinnedMemory) -> None:
        leaves: list[Leaf] = []
        copies: list[tuple[int, int, int]] = []  # of elements that lie side by side
        others: list[tuple[torch.Tensor, Leaf]] = []
        end = self.sent_bytes = 0
        for column in columns:
            leaf = _leaf_for(column, end)
            begin = end
            for host in column:
                if len(column) > 1 or host.stride() == leaf.strides:
                    copies.append((host.data_ptr(), host.nbytes, begin))
                    begin += host.nbytes
                elif host.nbytes:
                    others.append((host, leaf))
            leaves.append(leaf)
            self.sent_bytes += leaf.size_bytes
            end += aligned(leaf.size_bytes)
        self.leaves = leaves
        self.size_bytes = _rounded(size_of(leaves))
        self.memory = memory
        self.block, self.is_pinned = memory.take(self.size_bytes)
        _core.pack(self.block.data_ptr(), copies)
        for host, leaf in others:
            # PyTorch would copy large ones with all threads, which the consumer may need.
            word = WORDS[host.element_size()]
            [there] = leaves_in(self.block, [leaf._replace(dtype=word)])
            np.copyto(there.numpy(), host.view(word).numpy())

    def on_host(self) -> list[torch.Tensor]:
        """Return the tensors again, in memory of their own."""
        return [leaf.clone() for leaf in leaves_in(self.block, self.leaves)]


def _rounded(size_bytes: int) -> int:
    """Return a size with few others near it, so that ragged batches find memory of others."""
    step = max(ALIGNMENT, 1 << max(0, size_bytes.bit_length() - 4))
    return -(-size_bytes // step) * step


def _leaf_for(column: Sequence[torch.Tensor], begin: int) -> Leaf:
    first = column[0]
    if len(column) > 1:
        rows = sum(map(len, column))
        return leaf_of(first.dtype, (rows, *first.shape[1:]), begin)
    strides = first.stride()
    if not first.is_contiguous():  # dense tensors keep theirs
        strides = torch.empty_like(first, device="meta").stride()
    return Leaf(first.dtype, tuple(first.shape), strides, begin)


def hosts_of(leaf: Any) -> list[torch.Tensor]:
    """Return the tensors in host memory that a leaf consists of, none if it does not cross."""
    if is_jagged(leaf) and leaf.device.type == "cpu":
        leaf = leaf.detach()
        return [host for part in (leaf.values(), leaf.offsets()) for host in hosts_of(part)]
    host = host_tensor(leaf)
    return [] if host is None else [host]
