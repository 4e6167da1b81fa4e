"""Uploads by a Python thread: items go to a device while the consumer computes, each once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import torch

from pyecho.device.place import on_stream, stream_lent_to
from pyecho.device.runtime import copy, record, wait
from pyecho.device.tensors import WORDS, host_tensor, is_image, is_jagged
from pyecho.items.nest import leaves_of, map_nest
from pyecho.items.spec import EchoInfo
from pyecho.run.trace import span

DEPTH = 2
"""Uploads under way at a time: one is copied while the next is being issued."""


class Mark:
    """A point in the work on a stream. Its event serves another one once nothing refers to it."""

    __slots__ = ("_free", "event")

    def __init__(self, event: Any, free: deque[Any]) -> None:
        self.event = event
        self._free = free

    def __del__(self) -> None:
        """Give the event back."""
        self._free.append(self.event)

    def synchronize(self) -> None:
        """Wait until this point is reached."""
        self.event.synchronize()


class Uploaded(NamedTuple):
    """An item on the device, or on its way there."""

    item: Any
    tensors: list[torch.Tensor]  # its leaves on the device, one of each block of memory
    ready: Mark  # behind the work that makes it
    info: EchoInfo | None  # of a batch


class Uploader:
    """Copies items to a device, and computes there, on a stream of its own beside the consumer's.

    PyTorch's allocators guard the memory: pinned memory that a copy reads is used again once the
    copy is done, and memory of a tensor once the stream that was current at its delivery is done
    with it. On further streams the usual rule holds: ``tensor.record_stream(stream)``.
    """

    def __init__(
        self,
        device: torch.device,  # with its number
        *,
        dtype: torch.dtype | None = None,  # to convert images and the like to
        augment: Callable[[Any, int, int], Any] | None = None,  # of (batch, epoch, its number)
    ) -> None:
        self.device = device
        self.h2d_bytes = 0  # copied to the device so far
        self._dtype = dtype
        self._augment = augment
        self._stream = stream_lent_to(self, device)
        self._events: deque[Any] = deque()  # of marks that are gone
        # Of one thread each.
        self._sent: deque[Mark] = deque()
        self._finished: deque[Mark] = deque()

    # ------------------------------------------------------------ the threads that upload

    def computing(self) -> AbstractContextManager[object]:
        """Return a context in which the calling thread may call the methods below."""
        return on_stream(self.device, self._stream)

    def upload_item(self, item: Any) -> Uploaded:
        """Upload and convert an item of the source, in any thread and context."""
        there = self._there(item)
        arrival = self.arrival() if there else None
        with span("upload"), self.computing():
            if arrival:
                _follow(self._stream, arrival, there)
            return self._uploaded(self._converted(self.upload(item)), self._sent)

    def expect(self, item: Any) -> Any:
        """Have the default stream, that of threads which augment, wait for the current one."""
        if there := self._there(item):
            _follow(self._default(), self.arrival(), there)
        return item

    def upload_augmented(self, item: Any) -> Any:
        """Upload a batch that a thread has made on the default stream."""
        if there := self._there(item):
            _follow(self._stream, self._recorded(self._default()), there)
        return self.upload(item)

    def _default(self) -> Any:
        return torch.cuda.default_stream(self.device)

    def upload(self, item: Any) -> Any:
        """Start copying the leaves of `item` in host memory, and return the item over there.

        The device may read the host memory later, so it must not be modified.
        """
        return map_nest(self.copy, item)

    def copy(self, leaf: Any) -> Any:
        """Start copying a host tensor or array as it is; return every other leaf itself."""
        if is_jagged(leaf) and not self.is_there(leaf):
            parts = (self.copy(leaf.values()), self.copy(leaf.offsets()))
            return torch.nested.nested_tensor_from_jagged(*parts)
        host = host_tensor(leaf)
        if host is None:
            return leaf
        tensor = self._copied(host)
        self.h2d_bytes += tensor.nbytes
        return tensor

    def _copied(self, host: torch.Tensor) -> torch.Tensor:
        # The driver may read later, however little it is. PyTorch keeps pinned memory until then,
        # and waits for the end of a copy from other memory.
        is_pinned = host.is_pinned()
        if not is_pinned and (pinned := _pinned_copy(host)) is not None:
            host, is_pinned = pinned, True
        return host.to(self.device, non_blocking=is_pinned)

    def copy_into(self, there: torch.Tensor, pinned: torch.Tensor) -> Mark:
        """Start copying pinned memory, and return a mark behind that.

        Write to the memory again only after the mark. PyTorch keeps it until then if it has copied
        from it once, see `pyecho.device.runtime.copy`.
        """
        copy(there, pinned, self._stream)
        self.h2d_bytes += pinned.nbytes
        return self._recorded(self._stream)

    def finish(self, batch: Any, epoch: int, number: int, info: EchoInfo | None) -> Uploaded:
        """Convert and augment a batch on the device, of this number in its epoch."""
        batch = self._converted(batch)
        if self._augment is not None:
            with self.computing():  # whatever the function leaves behind
                batch = self._augment(batch, epoch, number)
        return self._uploaded(batch, self._finished, info)

    def upload_again(self, batch: Any, *info: Any) -> Uploaded:
        """Upload a finished batch, which `to_host` has returned, with the columns of its info."""
        return self._uploaded(self.upload(batch), self._finished, EchoInfo(*info) if info else None)

    def _converted(self, item: Any) -> Any:
        """Convert images and the like."""

        def converted(leaf: Any) -> Any:
            return leaf.to(self._dtype) if self.is_there(leaf) and is_image(leaf) else leaf

        return item if self._dtype is None else map_nest(converted, item)

    def _uploaded(self, item: Any, before: deque[Mark], info: EchoInfo | None = None) -> Uploaded:
        """Mark the end of the work on an item; wait while `DEPTH` others before are under way."""
        there = {leaf.untyped_storage().data_ptr(): leaf for leaf in self._there(item)}
        ready = self._recorded(self._stream)
        before.append(ready)
        if len(before) > DEPTH:
            before.popleft().synchronize()
        return Uploaded(item, list(there.values()), ready, info)

    # ------------------------------------------------------------ any thread

    def is_there(self, leaf: Any) -> bool:
        """Return True if a leaf is on the device."""
        return isinstance(leaf, torch.Tensor) and leaf.device == self.device

    def _there(self, item: Any) -> list[torch.Tensor]:
        leaves = [leaf for leaf in leaves_of(item) if self.is_there(leaf)]
        return [
            part
            for leaf in leaves
            for part in ((leaf.values(), leaf.offsets()) if is_jagged(leaf) else (leaf,))
        ]

    def arrival(self) -> Mark:
        """Mark the end of the work on the calling thread's current stream."""
        return self._recorded(self._current())

    def _current(self) -> Any:
        return torch.cuda.current_stream(self.device)

    def _recorded(self, stream: Any) -> Mark:
        """Mark the end of the work on a stream."""
        try:
            event = self._events.pop()
        except IndexError:
            # Waiting for an event that is not blocking takes a processor.
            event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        record(event, stream)
        return Mark(event, self._events)

    def deliver(self, uploaded: Uploaded) -> Any:
        """Return the item, fit for the calling thread's current stream. Never blocks."""
        _follow(self._current(), uploaded.ready, uploaded.tensors)
        return uploaded.item

    def to_host(self, item: Any) -> Any:
        """Return an item with its tensors in host memory. Waits for the device if it is there."""
        if not isinstance(item, Uploaded):
            return item
        there = self.deliver(item)
        return map_nest(lambda leaf: leaf.cpu() if self.is_there(leaf) else leaf, there)


def _follow(stream: Any, mark: Mark, tensors: list[torch.Tensor]) -> None:
    """Have a stream wait for a mark, and tell the allocator that it reads tensors."""
    wait(stream, mark.event)
    for tensor in tensors:
        tensor.record_stream(stream)


def _pinned_copy(host: torch.Tensor) -> torch.Tensor | None:
    """Return a copy in pinned memory with the same strides, None if no more can be pinned."""
    try:
        pinned = torch.empty_like(host, pin_memory=True)
    except RuntimeError:
        return None
    # PyTorch would copy large ones with all threads, which the consumer may need.
    word = WORDS[host.element_size()]
    np.copyto(pinned.view(word).numpy(), host.view(word).numpy())
    return pinned
