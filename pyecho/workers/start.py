"""Starts workers: processes, or threads of this one."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import multiprocessing
import os
import signal
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from pyecho._core import ConfigError
from pyecho.run.context import CallerContext
from pyecho.run.threads import Worker as Thread
from pyecho.workers.channel import (
    DONE,
    READY,
    SLOTS,
    TASK,
    UNREAD,
    close_ends,
    ends,
    message,
    receive,
    send,
)
from pyecho.workers.pool import Task
from pyecho.workers.process import Answer, Job, Maker, Slots, serve

_starting = threading.Lock()  # a process that is forked meanwhile would keep the ends of the other


SHORT_BYTES = 1 << 14
"""A longer message waits until the worker reads: it may be about to send a long answer itself."""


class ProcessWorker:
    """A worker process. It ends with its channel, and is killed if this process dies."""

    def __init__(self, context: Any, job: Job, number: int) -> None:
        if multiprocessing.current_process().daemon:
            raise ConfigError(
                f"{multiprocessing.current_process().name} is a daemonic process, such as a "
                "worker, and cannot start worker processes; pass num_workers=0 or "
                'workers="thread" to the loader in it'
            )
        self.tasks: deque[Task] = deque()
        self.began = False
        self._slots = -1  # number of those that it knows
        self._held: deque[list[Any]] = deque()  # messages, of the last tasks
        with _starting:
            _without_interrupts(partial(self._begin, context, job, number))

    def _begin(self, context: Any, job: Job, number: int) -> None:
        their_life, self._life = multiprocessing.Pipe(duplex=False)
        self._channel, theirs = socket.socketpair()  # may fail, too, and would leave a warning
        ends.update((self._channel, self._life))
        self._process = context.Process(
            target=serve,
            args=(theirs, their_life, number, job),
            name=f"pyecho-worker-{number}",
            daemon=True,
        )
        _with_end(self, _leave, os.getpid(), self._channel, self._life, self._process)
        try:
            self._process.start()
        finally:
            theirs.close()
            their_life.close()

    @property
    def pid(self) -> int | None:
        """Number of the process."""
        number: int | None = self._process.pid
        return number

    def fileno(self) -> int:
        """Return the descriptor of the channel."""
        return int(self._channel.fileno())

    def give(self, task: Task, slots: tuple[Slots, int] | None) -> None:
        """Have it do a task as well."""
        parts = message(TASK, task.part())
        if task.slots is not None and slots is not None and slots[0].number != self._slots:
            parts = [*message(SLOTS, slots[0]), slots[1], *parts]
            self._slots = slots[0].number
        is_short = sum(len(part) for part in parts if not isinstance(part, int)) <= SHORT_BYTES
        self._held.append(parts)
        self.tasks.append(task)
        if len(self.tasks) == 1 or (is_short and len(self._held) == 1):
            self._send_held()

    def _send_held(self) -> None:
        with contextlib.suppress(OSError):  # it has died, as collect() will find
            send(self._channel, self._held.popleft())

    def collect(self) -> list[Task] | None:
        """Take a message, and return the task that it answers; None if the worker has died."""
        try:
            kind, load, seconds = receive(self._channel)
        except (EOFError, OSError):
            return None
        if kind == READY:
            self.began = True
            return []
        task = self.tasks.popleft()
        if self._held and len(self._held) == len(self.tasks):
            self._send_held()
        task.seconds = seconds
        try:
            loaded = load()
        except BaseException as unread:  # what can be pickled, but not unpickled
            task.fail(unread)
            return [task]
        if kind == UNREAD:
            task.fail(loaded[1])
            return [task]
        values, error = (loaded, None) if kind == DONE else loaded
        task.take([None] * len(task.part()[2]) if values is None else values, error)
        return [task]

    def end(self) -> None:
        """Have it end after the task it does. From any thread."""
        with contextlib.suppress(OSError):  # it is over
            self._channel.shutdown(socket.SHUT_RDWR)

    def join(self, timeout: float) -> str:
        """Wait for its end; return how it ended."""
        self._process.join(timeout)
        return f"exit code {self._process.exitcode}"


class ThreadWorker:
    """A worker thread."""

    began = True

    _thread: Any = None  # until Ctrl-C can no longer cut short the beginning

    def __init__(self, job: Job, number: int) -> None:
        self.tasks: deque[Task] = deque()
        self._maker = Maker(job, seeded=False)
        self._slots = -1
        self._failure: BaseException | None = None  # of the beginning
        self._answers: deque[Answer] = deque()
        self._context = CallerContext()
        _without_interrupts(self._open)
        self._thread = Thread(f"worker-{number}")
        if job.init is not None:
            self._thread.give(partial(self._context.run, partial(job.init, number), self._fail))

    def _open(self) -> None:
        self._done, self._tell = socket.socketpair()
        _with_end(self, _close, self._done, self._tell)

    def _fail(self, error: BaseException) -> None:
        self._failure = error

    def fileno(self) -> int:
        """Return the descriptor that tells of answers."""
        return int(self._done.fileno())

    def give(self, task: Task, slots: tuple[Slots, int] | None) -> None:
        """Have it do a task as well."""
        if task.slots is not None and slots is not None and slots[0].number != self._slots:
            writer = slots[0].writer(slots[1])
            self._thread.give(partial(setattr, self._maker, "writer", writer))
            self._slots = slots[0].number
        self.tasks.append(task)
        self._thread.give(partial(self._do, task))

    def _do(self, task: Task) -> None:
        self._context.run(partial(self._make, task), self._fail)
        if self._failure is not None:
            self._answers.append(([], self._failure))
        self._tell.send(b"\0")

    def _make(self, task: Task) -> None:
        if self._failure is None:
            began = time.perf_counter()
            self._answers.append(self._maker.make(*task.part()))
            task.seconds = time.perf_counter() - began

    def collect(self) -> list[Task]:
        """Take an answer, and return its task."""
        self._done.recv(1)
        task = self.tasks.popleft()
        task.take(*self._answers.popleft())
        return [task]

    def end(self) -> None:
        """Have the thread end after its tasks."""
        self._thread.end()

    def join(self, timeout: float) -> str:
        """Wait for its end."""
        self._thread.done(timeout)
        return "no error"

    def __del__(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.end()


def _without_interrupts(function: Callable[[], None]) -> None:
    """Put off Ctrl-C. A process that is started meanwhile lets it in when it is ready for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:  # before the mask is set: Ctrl-C may come right after
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        function()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _with_end(worker: object, function: Callable[..., None], *arguments: Any) -> None:
    """Have a function called once the worker is gone.

    Not its `__del__`: in a cycle of garbage that of a pipe may come first. It leaves the number of
    a descriptor behind that may be another file's by now.
    """
    weakref.finalize(worker, function, *arguments).atexit = False


def _leave(owner: int, channel: socket.socket, life: Connection, process: Any) -> None:
    """Kill a process, if it still runs, and it is one of this process."""
    is_owner = owner == os.getpid()
    if is_owner:  # even if some child has inherited this end
        with contextlib.suppress(OSError):
            channel.shutdown(socket.SHUT_RDWR)
    _close(channel, life)
    if is_owner:
        # In a thread, because this may be the garbage collector's call: one of `threading` would
        # take locks that the interrupted code may hold.
        with contextlib.suppress(RuntimeError):  # the system, or the exit, allows no thread
            _thread.start_new_thread(_reap, (process,))


def _reap(process: Any) -> None:
    """Wait for the end of a process that was killed, and close what this one has of it."""
    with contextlib.suppress(Exception):  # another thread was first
        process.join()


def _close(*ends: Any) -> None:
    for end in ends:
        end.close()


def _after_fork() -> None:
    global _starting
    _starting = threading.Lock()  # another thread of the parent may have held it
    close_ends()


atexit.register(close_ends)  # after loaders have been closed: their handler is always a later one
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
