"""Messages between the loader and a worker process, over a pair of stream sockets.

A message is a kind and an object. Large arrays and tensors follow the pickled object as they are.
"""

from __future__ import annotations

import pickle
import socket
import struct
import sys
import weakref
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np

TASK, SLOTS, READY, DONE, FAILED, UNREAD = range(6)
"""Kinds: to a worker, items to make, and the memory of slots; from a worker, what came of it.

READY: `worker_init_fn` has returned or raised. UNREAD: the worker could not unpickle what it was
to make.
"""

ends: weakref.WeakSet[Any] = weakref.WeakSet()
"""The ends of channels that are this process's, and that no child may keep."""

_HEADER = struct.Struct("<BxxxIQd")
_LEAST_BYTES = 1 << 12  # of a buffer that follows the pickled object


class _Pickler(pickle.Pickler):
    """Pickles tensors in host memory as arrays, whose bytes are not copied."""

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not torch.Tensor or not _is_plain(value, torch):
            return NotImplemented
        array = value.contiguous().reshape(-1).view(torch.uint8).numpy()
        return _tensor_of, (array, value.dtype, tuple(value.shape))


def _is_plain(tensor: Any, torch: Any) -> bool:
    dense = tensor.is_cpu and tensor.layout == torch.strided and not tensor.is_nested
    return bool(
        dense
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj())
        and not tensor.is_neg()
    )


def _tensor_of(array: Any, dtype: Any, shape: Any) -> Any:
    import torch

    return torch.from_numpy(array).view(dtype).reshape(shape)


def dumps(value: Any) -> tuple[bytes, list[Any]]:
    """Return a pickled object, and the buffers that follow it."""
    buffers: list[Any] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LEAST_BYTES:
            return True  # within the pickled object
        buffers.append(raw)
        return False

    file = BytesIO()
    _Pickler(file, protocol=5, buffer_callback=keep).dump(value)
    return file.getvalue(), buffers


def message(kind: int, value: Any = None, seconds: float = 0.0) -> list[Any]:
    """Return the parts of a message, which also tells the seconds of its work.

    Pickling the value may raise anything.
    """
    if value is None:
        return [_HEADER.pack(kind, 0, 0, seconds)]
    pickled, buffers = dumps(value)
    sizes = struct.pack(f"<{len(buffers)}Q", *(buffer.nbytes for buffer in buffers))
    return [_HEADER.pack(kind, len(buffers), len(pickled), seconds) + sizes + pickled, *buffers]


def send(channel: socket.socket, parts: list[Any]) -> None:
    """Send parts of messages, and descriptors of files among them. Raises `OSError` if it fails."""
    for part in parts:
        if isinstance(part, int):
            socket.send_fds(channel, [b"\0"], [part])
        else:
            channel.sendall(part)


def receive(channel: socket.socket) -> tuple[int, Callable[[], Any], float]:
    """Return kind, what unpickles the object, and seconds of the next message.

    Raises `EOFError`, `OSError`; unpickling may raise anything.
    """
    kind, count, size, seconds = _HEADER.unpack(_received(channel, _HEADER.size))
    if size == 0:
        return kind, _nothing, seconds
    sizes = struct.unpack(f"<{count}Q", _received(channel, 8 * count))
    pickled = _received(channel, size)
    buffers = [_received(channel, each) for each in sizes]
    return kind, partial(pickle.loads, pickled, buffers=buffers), seconds


def _nothing() -> None:
    pass


def close_ends() -> None:
    """Close the ends of this process; in a child those of its parent.

    The workers would not notice the end of that, as long as the child has them.
    """
    for end in list(ends):
        end.close()


def _received(channel: socket.socket, size: int) -> memoryview:
    # Not a bytearray, which would be filled with zeros first.
    whole = memoryview(np.empty(size, np.uint8))  # type: ignore[arg-type]
    left = whole
    while left:
        count = channel.recv_into(left)
        if count == 0:
            raise EOFError
        left = left[count:]
    return whole
