"""The life of a worker process: makes one item after the other, until the loader is gone."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import reprlib
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from typing import Any

import numpy as np

from pyecho import _core
from pyecho.items.nest import node_of
from pyecho.source.reader import item_at
from pyecho.source.sniff import tell_epoch
from pyecho.workers.channel import (
    DONE,
    FAILED,
    READY,
    SLOTS,
    TASK,
    UNREAD,
    close_ends,
    dumps,
    message,
    receive,
    send,
)

Answer = tuple[list[Any], BaseException | None]
"""The results of a task, and the error that ended it early, if any."""


@dataclass(frozen=True)
class Job:
    """The work of all workers of a loader."""

    get: Callable[[Any], Any]
    dataset: Any
    count: int  # of the workers
    seed: int
    rank: int
    ranks: int
    init: Callable[[int], object] | None


@dataclass(frozen=True)
class Slots:
    """The slots of a stage, and how an item goes into them."""

    spec: Any
    to_array: Callable[[Any], Any]
    number: int  # of the file that is their memory
    size_bytes: int
    streamed: bool

    def writer(self, descriptor: int) -> _core.SlotWriter:
        """Return what writes items to the slots. `descriptor`: of their memory."""
        memory = (descriptor, self.size_bytes, self.streamed)
        return _core.SlotWriter(self.spec, node_of, self.to_array, *memory)


class Maker:
    """Makes items as a task asks for them, and writes them to slots.

    `seeded`: the global generators of `random`, NumPy and torch are seeded for every item, by
    (seed, epoch, place), so that no item depends on the worker that makes it.
    """

    def __init__(self, job: Job, *, seeded: bool = True) -> None:
        self._job = job
        self._seeded = seeded
        self._epoch: int | None = None
        self._key = 0
        self.writer: _core.SlotWriter | None = None

    def make(self, epoch: int, place: int, indices: list[Any], slots: list[int] | None) -> Answer:
        """Return the items, or what of them does not fit into slots, and what ended this."""
        made: list[Any] = []
        try:
            if epoch != self._epoch:
                tell_epoch(self._job.dataset, epoch)
                self._epoch = epoch
                self._key = _mixed(_mixed(self._job.seed) + epoch)
            for index in indices:
                if self._seeded:
                    whole = (place + len(made)) * self._job.ranks + self._job.rank
                    _seed(_mixed(self._key + whole))
                item = item_at(self._job.get, index)
                if slots is not None:
                    item = self._written(slots[len(made)], item, index)
                made.append(item)
        except BaseException as error:
            return made, error
        return made, None

    def _written(self, slot: int, item: Any, index: Any) -> Any:
        assert self.writer is not None
        try:
            return self.writer.write(slot, item)
        except _core.SpecMismatch as error:
            raise _core.SpecMismatch(f"source[{reprlib.repr(index)}]: {error}") from None


def serve(channel: socket.socket, life: Connection, worker: int, job: Job) -> None:
    """Answer every task until the loader closes the channel. Dies with the process of the loader.

    `life`: a pipe whose other end only that process has.
    """
    _die_with_loader(life)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the loader, which ends this one
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    close_ends()  # again: Ctrl-C may have cut short the first time
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    failure: BaseException | None = None
    try:
        _prepare(worker, job)
    except BaseException as error:
        failure = error
    maker = Maker(job)
    with channel, contextlib.suppress(OSError):  # the loader is gone
        send(channel, message(READY))
        _serve(channel, maker, failure)


def _serve(channel: socket.socket, maker: Maker, failure: BaseException | None) -> None:
    while True:
        try:
            kind, load, _ = receive(channel)
            descriptors = _descriptors(channel) if kind == SLOTS else []
        except (EOFError, OSError):
            return
        try:
            for descriptor in descriptors:
                maker.writer = load().writer(descriptor)
                os.close(descriptor)
        except BaseException as error:
            failure = error  # of which the next task tells
        if kind != TASK:
            continue
        began = time.perf_counter()
        kind = FAILED
        try:
            task = load()
        except BaseException as error:
            kind, made = UNREAD, _nothing(error)
        else:
            made = _nothing(failure) if failure is not None else maker.make(*task)
        send(channel, _answer(*made, time.perf_counter() - began, kind))


def _descriptors(channel: socket.socket) -> list[int]:
    close_on_exec = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # of Linux
    return socket.recv_fds(channel, 1, 1, close_on_exec)[1]


def _nothing(error: BaseException) -> Answer:
    """Return the answer to a task that could not begin."""
    return [], error


def _answer(
    made: list[Any], error: BaseException | None, seconds: float, failed: int = FAILED
) -> list[Any]:
    if error is None and not any(value is not None for value in made):
        return message(DONE, None, seconds)  # all of it is in slots
    try:
        if error is None:
            return message(DONE, made, seconds)
        return message(failed, (made, _portable(error)), seconds)
    except BaseException as unsent:  # it cannot be pickled: send what comes before
        if not made:
            raise
        return _answer(*_up_to_unsent(made, unsent), seconds)


def _up_to_unsent(made: list[Any], unsent: BaseException) -> Answer:
    for place, value in enumerate(made):
        try:
            dumps(value)
        except BaseException as error:
            return made[:place], error
    return made[:-1], unsent  # only all of it together cannot


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
            id=worker, num_workers=job.count, seed=seed, dataset=job.dataset
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
    import fcntl

    if hasattr(fcntl, "F_SETSIG"):
        descriptor = life.fileno()
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
    if life.poll(0):  # it was closed before
        os._exit(1)
