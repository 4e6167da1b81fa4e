"""Uploads: items go to a CUDA device while the consumer computes, each at most once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch

from pyecho import cuda
from pyecho.device.memory import pinned_copy
from pyecho.device.torch import host_tensor
from pyecho.nest import map_nest

DEPTH = 2
"""Uploads under way at a time: one is copied while the next is being issued."""


class Uploaded(NamedTuple):
    """An item on the device, or on its way there."""

    item: Any
    tensors: list[torch.Tensor]
    """The leaves of the item that are on the device, in order."""
    ready: torch.cuda.Event
    """Recorded behind the work that makes them."""


class Uploader:
    """Copies items to a device, and computes there, on a stream of its own.

    PyTorch's allocators guard the memory: pinned memory that a copy reads is used again once the
    copy is done, and memory of a tensor once the stream that was current at its delivery is done
    with it. On further streams the usual rule holds: ``tensor.record_stream(stream)``.

    One thread at a time uploads and computes, and any thread delivers.

    Parameters
    ----------
    device
        A CUDA device with its number.
    dtype
        Dtype to convert images and the like to; None leaves them as they are.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype | None = None) -> None:
        self.device = device
        self._dtype = dtype
        self._under_way: deque[torch.cuda.Event] = deque()
        self.h2d_bytes = 0
        """Bytes copied to the device so far."""

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Let the calling thread allocate and compute on pyecho's stream."""
        # Leaving a stream of another device would make a context on the thread's device 0.
        with (
            cuda.relaxed_capture(),
            torch.cuda.device(self.device),
            torch.cuda.stream(_stream_on(self.device)),
        ):
            yield

    def upload(self, item: Any) -> Uploaded:
        """Start copying the arrays of `item`, and convert them on the device.

        The device reads the host memory later, so it must not be modified.
        """
        tensors: list[torch.Tensor] = []

        def place(leaf: Any) -> Any:
            tensor = self.copy(leaf)
            if tensor is None:
                return leaf
            tensors.append(self.convert(tensor))
            return tensors[-1]

        with self.computing():
            return self.computed(map_nest(place, item), tensors)

    def copy(self, leaf: Any) -> torch.Tensor | None:
        """Start copying a host tensor or array as it is; None for other leaves. See `computing`."""
        host = host_tensor(leaf)
        if host is None:
            return None
        pinned = host if host.is_pinned() else pinned_copy(host)
        tensor = pinned.to(self.device, non_blocking=True, memory_format=torch.contiguous_format)
        self.h2d_bytes += tensor.nbytes
        return tensor

    def convert(self, tensor: torch.Tensor) -> torch.Tensor:
        """Convert images, waves and the like: uint8 and floats, with axes beside the batch's."""
        numeric = tensor.dtype == torch.uint8 or tensor.dtype.is_floating_point
        if self._dtype is None or tensor.ndim < 2 or not numeric:
            return tensor
        return tensor.to(self._dtype)

    def computed(self, item: Any, tensors: list[torch.Tensor]) -> Uploaded:
        """Return an item whose `tensors` were computed on pyecho's stream, to be delivered.

        Waits while more than `DEPTH` others are being computed.
        """
        make: Any = torch.cuda.Event  # untyped in PyTorch
        ready = make(blocking=True)
        ready.record(_stream_on(self.device))
        self._under_way.append(ready)
        if len(self._under_way) > DEPTH:
            self._under_way.popleft().synchronize()
        return Uploaded(item, tensors, ready)

    def deliver(self, uploaded: Uploaded, number: int = 0, use: int = 0) -> Any:
        """Return the item, fit for the calling thread's current stream. Never blocks."""
        current = torch.cuda.current_stream(self.device)
        current.wait_event(uploaded.ready)
        for tensor in uploaded.tensors:
            tensor.record_stream(current)
        return uploaded.item


@cache
def _stream_on(device: torch.device) -> torch.cuda.Stream:
    """Return pyecho's stream; PyTorch would lend one of its own to others as well."""
    make: Any = torch.cuda.ExternalStream  # untyped in PyTorch
    return make(cuda.new_stream(device.index), device=device)  # type: ignore[no-any-return]
