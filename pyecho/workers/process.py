"""Makes items in a worker, one after the other; begins and ends a worker process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import random
import reprlib
import signal
import sys
import time
import traceback
import weakref
from array import array
from collections.abc import Callable, Sequence
from io import BytesIO
from multiprocessing import reduction
from multiprocessing.connection import Connection
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import numpy as np

# Not in the worker: one that is forked while another thread imports the same would wait for ever.
import numpy.random

from pyecho import _core
from pyecho.items.nest import node_of

READY = SLOTS = b""
"""The message of a worker that has begun; to a worker: a descriptor and `Slots` come next."""

LARGE_BYTES = 1 << 16
"""Arrays of this size follow a pickled item instead of being in it."""

SIZES = b"B"  # no pickle begins so
"""Begins a message with the sizes of the buffers that follow the next one."""

ends: weakref.WeakSet[Any] = weakref.WeakSet()
"""The ends of channels that are this process's, and that no child may keep."""


class Job(NamedTuple):
    """The work of all workers of a loader."""

    get: Callable[[Any], Any]  # makes an item of its index
    tell: Callable[[int], None]  # tells the dataset of an epoch
    dataset: Any
    workers: int
    seed: int
    rank: int
    ranks: int
    init: Callable[[int], object] | None


class Slots(NamedTuple):
    """The slots of a stage, and how an item goes into them."""

    spec: Any
    to_array: Callable[[Any], Any]
    descriptor: int  # of the file that is their memory
    number: int  # of this file
    size_bytes: int
    streamed: bool


class Part(NamedTuple):
    """Items to make now, one after the other."""

    epoch: int
    place: int  # of the first item in the epoch
    indices: list[Any]
    slots: list[int] | None  # where the items go; None: back to the loader


class Reply(NamedTuple):
    """Items made for a part, or the error."""

    made: list[Any]  # the items; in slots, what of each does not fit there
    error: BaseException | None = None  # that came after these
    seconds: float = 0.0
    unread: bool = False  # the worker could not unpickle the part


class Maker:
    """Makes items as a part asks for them, and writes them to slots.

    `seeded`: the global generators of `random`, NumPy and torch are seeded for every item, by
    (seed, epoch, place), so that no item depends on the worker that makes it.
    """

    def __init__(self, job: Job, *, seeded: bool) -> None:
        self.failure: BaseException | None = None
        """Why no item can be made, if that is so."""
        self._job = job
        self._seeded = seeded
        self._epoch: int | None = None
        self._key = 0
        self._writer: _core.SlotWriter | None = None

    def fill(self, slots: Slots) -> None:
        """Write items to these slots from now on."""
        memory = slots.descriptor, slots.size_bytes, slots.streamed
        self._writer = _core.SlotWriter(slots.spec, node_of, slots.to_array, *memory)

    def make(self, part: Part) -> Reply:
        """Make the items."""
        began, made, error = time.perf_counter(), list[Any](), self.failure
        try:
            if error is None:
                self._make(part, made)
        except BaseException as raised:
            error = raised
        return Reply(made, error, time.perf_counter() - began)

    def _make(self, part: Part, made: list[Any]) -> None:
        job, slots = self._job, part.slots
        if part.epoch != self._epoch:
            job.tell(part.epoch)
            self._epoch = part.epoch
            self._key = _mixed(_mixed(job.seed) + part.epoch)
        for at, index in enumerate(part.indices):
            if self._seeded:
                _seed(_mixed(self._key + (part.place + at) * job.ranks + job.rank))
            item = job.get(index)
            made.append(item if slots is None else self._written(slots[at], item, index))

    def _written(self, slot: int, item: Any, index: Any) -> Any:
        assert self._writer is not None
        try:
            return self._writer.write(slot, item)
        except _core.SpecMismatch as error:
            raise mismatch(index, error) from None


def mismatch(index: Any, why: object) -> _core.SpecMismatch:
    """Return the error of an item that is unlike the first."""
    return _core.SpecMismatch(f"source[{reprlib.repr(index)}]: {why}")


# ------------------------------------------------------------ worker processes


def serve(channel: Connection, life: Connection, worker: int, job: Job) -> None:
    """Answer every part until the loader closes the channel. Dies with the process of the loader.

    `life`: a pipe whose other end only that process has.
    """
    _die_with_loader(life)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the loader, which ends this one
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    close_ends()  # again: Ctrl-C may have cut short the first time
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    maker = Maker(job, seeded=True)
    try:
        _prepare(worker, job)
    except BaseException as error:
        maker.failure = error
    with channel, contextlib.suppress(EOFError, OSError):  # the loader is gone
        channel.send_bytes(READY)
        while True:
            message = channel.recv_bytes()
            if message != SLOTS:
                send(channel, *_sent(_reply(maker, message)))
                continue
            descriptor, message = reduction.recv_handle(channel), channel.recv_bytes()
            try:
                maker.fill(pickle.loads(message)._replace(descriptor=descriptor))
            except BaseException as error:
                maker.failure = error
            os.close(descriptor)


def _reply(maker: Maker, message: bytes) -> Reply:
    try:
        part = pickle.loads(message)
    except BaseException as error:
        return Reply([], error, unread=True)
    return maker.make(part)


def send(channel: Connection, pickled: Any, buffers: Sequence[memoryview]) -> None:
    """Send what `receive` returns. May be cut short, after which the channel is of no use."""
    if buffers:
        channel.send_bytes(SIZES + array("Q", [each.nbytes for each in buffers]).tobytes())
    channel.send_bytes(pickled)
    for buffer in buffers:  # as they are: a message would be copied
        while buffer.nbytes:
            buffer = buffer[os.write(channel.fileno(), buffer) :]


def receive(channel: Connection, message: bytes) -> tuple[bytes, list[Any]]:
    """Return a pickled reply and the buffers that belong to it; `message`: the first one."""
    if not message.startswith(SIZES):
        return message, []
    buffers = [np.empty(size, np.uint8) for size in array("Q", message[len(SIZES) :])]
    pickled = channel.recv_bytes()
    for buffer in buffers:
        view = buffer.data
        while view.nbytes:
            count = os.readv(channel.fileno(), [view])
            if not count:
                raise EOFError
            view = view[count:]
    return pickled, list(buffers)


def _sent(reply: Reply) -> tuple[Any, list[memoryview]]:
    """Return a reply pickled, and large arrays in it; where that fails, what comes before."""
    made, error = reply.made, reply.error
    try:
        if error is None and all(value is None for value in made):  # all of it is in slots
            return pickle.dumps(reply, 5), []
        return dumps(reply._replace(error=None if error is None else _portable(error)))
    except BaseException as unsent:
        if not made:
            raise
        kept, error = len(made) - 1, unsent  # perhaps only all of it together cannot be
    for place, value in enumerate(made):
        try:
            dumps(value)
        except BaseException as unsent:
            kept, error = place, unsent
            break
    return _sent(reply._replace(made=made[:kept], error=error))


class _Pickler(pickle.Pickler):
    """Pickles tensors in host memory as arrays: PyTorch would write a file for each."""

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not torch.Tensor or not _is_plain(value, torch):
            return NotImplemented
        array = value.contiguous().reshape(-1).view(torch.uint8).numpy()
        return _tensor_of, (array, value.dtype, tuple(value.shape))


def _is_plain(tensor: Any, torch: Any) -> bool:
    dense = tensor.is_cpu and tensor.layout == torch.strided and not tensor.is_nested
    changed = tensor.requires_grad or tensor.is_quantized or tensor.is_conj()
    return bool(dense and not (changed or tensor.is_neg()))


def _tensor_of(array: Any, dtype: Any, shape: Any) -> Any:
    import torch

    return torch.from_numpy(array).view(dtype).reshape(shape)


def dumps(value: Any) -> tuple[Any, list[memoryview]]:
    """Return a pickled object, and the memory of large arrays in it. May raise anything."""
    file, buffers = BytesIO(), list[memoryview]()

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        memory = buffer.raw()
        if memory.nbytes < LARGE_BYTES:
            return True
        buffers.append(memory)
        return False

    _Pickler(file, protocol=5, buffer_callback=is_small).dump(value)
    return file.getbuffer(), buffers


def _portable(error: BaseException) -> Any:
    """Return an exception as it can be sent, with the text of its traceback as its cause."""
    sent = ExceptionWithTraceback(error, error.__traceback__)
    try:
        pickle.loads(pickle.dumps(sent))
    except BaseException:
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        sent = ExceptionWithTraceback(RuntimeError(text), error.__traceback__)
    return sent


def _prepare(worker: int, job: Job) -> None:
    """Be a worker as torch's are: with a number, seeds of its own, and one thread for torch."""
    seed = (job.seed + worker) % 2**63
    _seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    data = sys.modules.get("torch.utils.data")
    if data is not None:
        known: Any = data._utils.worker
        known._worker_info = known.WorkerInfo(
            id=worker, num_workers=job.workers, seed=seed, dataset=job.dataset
        )
    if job.init is not None:
        job.init(worker)


def _seed(seed: int) -> None:
    """Seed the global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (what datasets use)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(seed % 2**63)


def _mixed(value: int) -> int:
    """Return 64 bits that look random: SplitMix64."""
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


def _die_with_loader(life: Connection) -> None:
    """Have the kernel kill this process once the other end of the pipe is closed.

    A thread that waits for that would not run while the dataset blocks with the GIL.
    """
    if hasattr(fcntl, "F_SETSIG"):
        descriptor = life.fileno()
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
    if life.poll(0):  # it was closed before
        os._exit(1)


def close_ends() -> None:
    """Close the ends of this process; in a child those of its parent.

    The workers would not notice the end of that, as long as the child has them.
    """
    for end in list(ends):
        close_end(end)


def close_end(end: Any) -> None:
    """Close an end of a channel once, whatever a fork or another thread does meanwhile.

    A `Connection` forgets its descriptor only after it has closed it, and another one may have the
    number by then.
    """
    descriptor, end._handle = end._handle, None
    if descriptor is not None:
        with contextlib.suppress(OSError):
            os.close(descriptor)
