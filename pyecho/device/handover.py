"""The hand-over: what crosses lies in one pinned block, and is one copy to one block on the device.

The block on the device is allocated by the thread that takes it, on its current stream, and the
copy waits for that stream. So memory that the consumer drops is memory of its stream again at once,
and the allocator need not be told of other streams. Whatever waits is sent while the consumer takes
what was sent before it.
"""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import AbstractContextManager
from typing import Any

import torch

from pyecho._core import ConfigError, EchoError, check_guards, share_item
from pyecho.device.crossing import Crossing
from pyecho.device.leaves import Leaf, conversion_of, leaves_in, new_memory, tensor_of
from pyecho.device.memory import Spares
from pyecho.device.pinned import Mark, Packed, PinnedMemory, hosts_of
from pyecho.device.place import is_captured, on_stream, stream_lent_to
from pyecho.device.runtime import copy, copy_by_torch, wait
from pyecho.device.tensors import is_image, is_jagged
from pyecho.items.nest import flatten, leaves_of, map_nest
from pyecho.items.spec import EchoInfo
from pyecho.run.trace import span

MOST_SENT = 2
"""Items that are sent, at most, whenever one is taken: a pool that begins has many."""


class HandOver:
    """Brings items to a device, in one copy each, for the current stream of the thread that takes.

    `pack` may be called in any thread; `take` and `deliver` in one thread at a time. On further
    streams the usual rule holds: ``tensor.record_stream(stream)``.
    """

    def __init__(
        self,
        device: torch.device,  # with its number
        *,
        ahead: int,  # batches that the consumer may take beyond those its stream has reached
        dtype: torch.dtype | None = None,  # to convert images and the like to
        limit: int | None = None,  # of the bytes of items on the device
        pin: bool | None = None,  # see `PinnedMemory`
        sends: bool = True,  # ahead, as the consumer takes; False: another thread takes, too
        keeps: bool = False,  # items have several uses, and stay until the last
        shared: bool = False,  # which must not change them
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.limit = limit
        self.stream = stream_lent_to(self, device)  # of copies
        self._spares = Spares(device, ahead=limit is None)
        self.sent_bytes = 0
        self.lent_bytes = 0  # size of blocks to `lend`
        self._ahead = ahead
        self._sends = sends
        self._keeps = keeps
        self._shared = shared
        self._pinned = PinnedMemory(device, self.stream, ahead + 2, pin)
        self._events: deque[Any] = deque()  # of marks that are gone
        self._waiting: deque[weakref.ref[Crossing]] = deque()  # to be sent
        self._there: weakref.WeakSet[Crossing] = weakref.WeakSet()  # with memory on the device
        self._taken: deque[Mark] = deque()  # where the consumer's stream was then
        self._lent: deque[tuple[Any, Any, Mark]] = deque()  # memory, and its stream, from there on

    # ------------------------------------------------------------ any thread

    def computing(self) -> AbstractContextManager[object]:
        """Return a context in which the calling thread computes on pyecho's stream."""
        return on_stream(self.device, self.stream)

    def is_there(self, leaf: Any) -> bool:
        """Return True if a leaf is on the device."""
        return isinstance(leaf, torch.Tensor) and leaf.device == self.device

    def pack(self, item: Any, info: EchoInfo | None = None) -> Crossing:
        """Return an item ready to cross; what is on the device may be under way on this stream."""
        with span("upload"):
            crossing = Crossing(*flatten(item), info)
            columns: list[list[torch.Tensor]] = []
            for number, leaf in enumerate(crossing.leaves):
                if not self.is_there(leaf) and (hosts := hosts_of(leaf)):
                    crossing.places.append((number, len(hosts)))
                    columns += [[host] for host in hosts]
            if columns:
                crossing.packed = Packed(columns, self._pinned)
                crossing.parts = crossing.packed.leaves
                crossing.forget()
                if self._sends:
                    self._waiting.append(weakref.ref(crossing))
            self._mark_foreign(crossing)
        return crossing

    def finished(self, item: Any, info: EchoInfo | None = None) -> Crossing:
        """Return an item that the current stream makes on the device."""
        crossing = Crossing(*flatten(item), info)
        self._mark_foreign(crossing)
        crossing.item = item
        return crossing

    def bring(self, columns: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        """Return columns, each joined of several, on the device; for a thread in `computing`."""
        with span("upload"):
            crossing = Crossing(*flatten([None] * len(columns)))
            crossing.places = [(number, 1) for number in range(len(columns))]
            crossing.converts = False
            crossing.packed = Packed(columns, self._pinned)
            crossing.parts = crossing.packed.leaves
            self._send(crossing, self.stream)
            found: list[torch.Tensor] = self.take(crossing)
        return found

    def lend(
        self, leaves: list[Leaf], columns: list[Any], structure: Any, info: EchoInfo
    ) -> Crossing:
        """Return an item of which a thread in `computing` writes `leaves`, None among `columns`.

        The block is the consumer's if there is one, else one of pyecho's stream. Then call `lent`.
        """
        crossing = Crossing(columns, structure, info)
        crossing.parts = leaves
        crossing.places = [(number, 1) for number, leaf in enumerate(columns) if leaf is None]
        try:
            crossing.memory, crossing.stream, mark = self._lent.popleft()
            wait(self.stream, mark.event)
        except IndexError:
            crossing.memory = self.allocated(self.lent_bytes, self.stream)
            crossing.stream = self.stream
        crossing.copies = self.stream
        return crossing

    def lent(self, crossing: Crossing) -> Crossing:
        """Mark the end of that."""
        crossing.arrived = self._mark(self.stream)
        return crossing

    def _mark_foreign(self, crossing: Crossing) -> None:
        crossing.foreign = self._tensors_there(crossing.leaves)
        if crossing.foreign:
            crossing.made = self._mark(self._current())

    def _tensors_there(self, leaves: list[Any]) -> list[torch.Tensor]:
        """Return the tensors on the device, one of each block of memory."""
        there = {
            part.untyped_storage().data_ptr(): part
            for leaf in leaves
            if self.is_there(leaf)
            for part in ((leaf.values(), leaf.offsets()) if is_jagged(leaf) else (leaf,))
        }
        return list(there.values())

    def expect(self, item: Any) -> Any:
        """Have the default stream, that of threads which augment, wait for the current one."""
        if there := self._tensors_there(leaves_of(item)):
            _follow(self._default(), self._mark(self._current()), there)
        return item

    # ------------------------------------------------------------ the thread that takes

    def take(self, crossing: Crossing) -> Any:
        """Return the item, fit for the current stream. If this raises, it can be repeated."""
        stream = self._current()
        if crossing.made is not None:
            _follow(stream, crossing.made, crossing.foreign)
        if crossing.parts:
            if crossing.arrived is None:
                self._check(crossing)
                self._send(crossing, stream)
            if stream != self.stream:
                assert crossing.arrived is not None
                wait(stream, crossing.arrived.event)  # which cannot be captured
        if crossing.item is None:
            self._unpack(crossing, stream)
            return crossing.item
        if crossing.guards:
            check_guards(crossing.item, crossing.guards)
        if self.dtype is not None or (crossing.parts and stream != crossing.stream):
            for tensor in self._tensors_there(leaves_of(crossing.item)):
                tensor.record_stream(stream)
        return crossing.item

    def _unpack(self, crossing: Crossing, stream: Any) -> None:
        memory, packed = crossing.memory, crossing.packed
        tensors: list[Any] = []
        is_free = False
        if crossing.parts:
            if stream != crossing.stream:
                tensor_of(memory).record_stream(stream)
            dtype = self.dtype if crossing.converts else None
            tensors, is_free = self.leaves(memory, crossing.parts, stream, dtype)
        item, guards = crossing.item_of(tensors), list[Any]()
        arrived = crossing.arrived
        if self.dtype is not None and crossing.converts:
            if crossing.foreign or any(count > 1 for _, count in crossing.places):
                item = map_nest(self._converted, item)
            if self._keeps:  # other streams may follow
                crossing.made = crossing.made and self._mark(stream)
                crossing.arrived = arrived and self._mark(stream)
        if self._shared:
            item, guards = share_item(item)
        crossing.guards = guards
        crossing.item = item
        if packed is not None and packed.is_pinned:
            assert arrived is not None
            packed.memory.give_back(packed.block, arrived)
        crossing.packed = crossing.memory = None  # before that, Ctrl-C leaves it to the finalizer
        if is_free and packed is not None:
            self.give_back(memory, packed.size_bytes, crossing.stream)

    def _converted(self, leaf: Any) -> Any:
        is_one = self.is_there(leaf) and is_image(leaf.dtype, leaf.ndim)
        return leaf.to(self.dtype) if is_one and leaf.dtype != self.dtype else leaf

    def leaves(
        self, memory: Any, leaves: list[Leaf], stream: Any, dtype: torch.dtype | None
    ) -> tuple[list[Any], bool]:
        """Return leaves of a block, images in this dtype, and True if the block is free again."""
        conversion = None if dtype is None else conversion_of(tuple(leaves), dtype)
        if conversion is None or not conversion.size_bytes:
            return leaves_in(memory, leaves), False
        into = self.allocated(conversion.size_bytes, stream)
        conversion.run(memory, into)
        staying = [
            leaf for leaf, after in zip(leaves, conversion.after, strict=True) if after is None
        ]
        old = iter(leaves_in(memory, staying) if staying else [])
        new = iter(leaves_in(into, [after for after in conversion.after if after is not None]))
        return [next(old if after is None else new) for after in conversion.after], not staying

    def deliver(self, crossing: Crossing) -> Any:
        """Return the item to the consumer; wait if its stream lags behind by `ahead` batches."""
        item = self.take(crossing)
        if not self._keeps:
            self._there.discard(crossing)
        if crossing.arrived is not None or crossing.made is not None:
            stream, memory = self._current(), None
            if self._sends and self.lent_bytes and len(self._lent) < self._ahead:
                memory = self.allocated(self.lent_bytes, stream)
            mark = self._mark(stream)
            if memory is not None:
                self._lent.append((memory, stream, mark))
            self._taken.append(mark)
            if len(self._taken) > self._ahead:
                mark = self._taken.popleft()
                if not mark.passed():
                    mark.event.synchronize()
            self._send_more(stream)
        return item

    def _send_more(self, stream: Any) -> None:
        """Send some of what waits."""
        for _ in range(MOST_SENT):
            while self._waiting:
                crossing = self._waiting[0]()
                if crossing is not None and crossing.arrived is None:
                    break
                self._waiting.popleft()
            else:
                return
            if not self._fits(crossing):
                return
            self._send(crossing, stream)

    def _check(self, crossing: Crossing) -> None:
        """Raise an error if an item cannot be sent now."""
        if not self._fits(crossing):
            raise ConfigError(
                f"{len(self._there) + 1} items would be kept on {self.device}, which is more than "
                f"Device(max_bytes=) allows ({self.limit} bytes); lower shuffle_buffer, batch_size "
                "or prefetch, or raise it"
            )
        if self._is_captured():  # nothing could wait for events of a capture
            raise EchoError(
                "this thread captures a CUDA graph, in which a loader cannot send a batch; take it "
                "before the capture"
            )

    def _send(self, crossing: Crossing, stream: Any) -> None:
        """Send an item, to memory of the current stream."""
        packed = crossing.packed
        assert packed is not None
        if crossing.memory is None:
            memory = self.allocated(packed.size_bytes, stream)
            crossing.memory, crossing.stream = memory, stream
        if self.limit is not None:
            self._there.add(crossing)
        if crossing.stream != self.stream:
            wait(self.stream, self._mark(crossing.stream).event)
        crossing.copies = self.stream
        send = copy if packed.is_pinned else copy_by_torch
        send(crossing.memory, packed.block, packed.size_bytes, self.stream)
        crossing.arrived = self._mark(self.stream)
        self.sent_bytes += packed.sent_bytes

    def _fits(self, crossing: Crossing) -> bool:
        if self.limit is None:
            return True
        kept = {*self._there, crossing}
        return (
            sum(conversion_of(tuple(each.parts), self.dtype).kept_bytes for each in kept)
            <= self.limit
        )

    def allocated(self, size_bytes: int, stream: Any) -> Any:
        """Return memory on the device, of the current stream."""
        if stream == self.stream:  # of which another thread may be than that of the spares
            return new_memory(1, size_bytes, self.device)[0]
        return self._spares.take(size_bytes, stream)

    def give_back(self, memory: Any, size_bytes: int, stream: Any) -> None:
        """Take memory back that no tensor shares; what follows on its stream may use it."""
        if stream != self.stream:
            self._spares.give_back(memory, size_bytes, stream)

    # ------------------------------------------------------------ states

    def to_host(self, crossing: Crossing) -> Any:
        """Return an item with its tensors in host memory."""
        if crossing.packed is not None and crossing.item is None:
            item = crossing.item_of(crossing.packed.on_host())
        else:
            item = self.take(crossing)
        return map_nest(lambda leaf: leaf.cpu() if self.is_there(leaf) else leaf, item)

    # ------------------------------------------------------------ streams

    def _default(self) -> Any:
        return torch.cuda.default_stream(self.device)

    def _current(self) -> Any:
        return torch.cuda.current_stream(self.device)

    def _is_captured(self) -> bool:
        return is_captured(self.device)

    def _mark(self, stream: Any) -> Mark:
        """Mark the end of the work on a stream."""
        return Mark(stream, self._events)


def _follow(stream: Any, mark: Mark, tensors: list[torch.Tensor]) -> None:
    """Have a stream wait for a mark, and tell the allocator that it reads tensors."""
    wait(stream, mark.event)
    for tensor in tensors:
        tensor.record_stream(stream)
