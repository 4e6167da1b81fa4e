"""Workers of a pool: processes, or threads of this one."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
import threading
import weakref
from collections import deque
from functools import partial
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

from pyecho._core import ConfigError
from pyecho.run.context import CallerContext
from pyecho.run.threads import Worker as Thread
from pyecho.workers.pool import Task
from pyecho.workers.process import (
    READY,
    SLOTS,
    Job,
    Maker,
    Reply,
    Slots,
    close_end,
    close_ends,
    ends,
    receive,
    serve,
)

_starting = threading.Lock()  # a process that is forked meanwhile would keep the ends of the other

SHORT_BYTES = 1 << 14
"""A longer message waits until the worker reads: it may be about to send a long reply itself."""


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
        self._filled = -1  # number of the slots that it knows
        self._held: deque[Any] = deque()  # messages, of the last tasks
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        with _starting:
            try:  # before the mask is set: Ctrl-C may come right after
                # The process lets Ctrl-C in when it is ready for it.
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                self._begin(context, job, number)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _begin(self, context: Any, job: Job, number: int) -> None:
        their_life, self._life = multiprocessing.Pipe(duplex=False)
        self._channel, theirs = multiprocessing.Pipe()
        ends.update((self._channel, self._life))
        self._process = context.Process(
            target=serve,
            args=(theirs, their_life, number, job),
            name=f"pyecho-worker-{number}",
            daemon=True,
        )
        # Not by `__del__`: in a cycle of garbage that of a pipe may come first.
        parts = os.getpid(), self._channel, self._life, self._process
        weakref.finalize(self, _leave, *parts).atexit = False
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
        return self._channel.fileno()

    def give(self, task: Task, slots: Slots | None) -> None:
        """Have it do a task as well."""
        message = pickle.dumps(task.part(), 5)
        if task.slots is not None and slots is not None and slots.number != self._filled:
            self._send_slots(slots, pickle.dumps(slots, 5))
            self._filled = slots.number
        self._held.append(message)
        self.tasks.append(task)
        if len(self.tasks) == 1 or (len(message) <= SHORT_BYTES and len(self._held) == 1):
            self._send_held()

    def _send_slots(self, slots: Slots, message: Any) -> None:
        """Send slots at once: earlier tasks that it still has use none."""
        with contextlib.suppress(OSError):  # it has died, as collect() will find
            self._channel.send_bytes(SLOTS)
            reduction.send_handle(self._channel, slots.descriptor, self.pid)
            self._channel.send_bytes(message)

    def _send_held(self) -> None:
        with contextlib.suppress(OSError):  # likewise
            self._channel.send_bytes(self._held.popleft())

    def collect(self) -> Task | None:
        """Take a message, and return the task that it answers. Raises `EOFError` or `OSError`."""
        message = self._channel.recv_bytes()
        if message == READY:
            self.began = True
            return None
        try:
            pickled, buffers = receive(self._channel, message)
        except BaseException:  # the next message would begin in the middle of this one
            self._process.kill()  # now: another worker will write to the slots that it has
            self.end()
            raise
        task = self.tasks.popleft()
        if self._held and len(self._held) == len(self.tasks):
            self._send_held()
        try:
            reply = pickle.loads(pickled, buffers=buffers)
        except BaseException as unread:  # what can be pickled, but not unpickled
            task.fail(unread)
            return task
        if reply.unread:
            task.fail(reply.error)
        else:
            task.take(reply)
        return task

    def end(self) -> None:
        """Have it end after the task it does. From any thread."""
        _shut(self._channel)

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
        self._filled = -1
        self._replies: deque[Reply] = deque()
        self._context = CallerContext()
        self._done, self._tell = multiprocessing.Pipe(duplex=False)
        self._thread = Thread(f"worker-{number}")
        if job.init is not None:
            begin, fail = partial(job.init, number), partial(setattr, self._maker, "failure")
            self._thread.give(partial(self._context.run, begin, fail))

    def fileno(self) -> int:
        """Return the descriptor that tells of replies."""
        return self._done.fileno()

    def give(self, task: Task, slots: Slots | None) -> None:
        """Have it do a task as well."""
        if task.slots is not None and slots is not None and slots.number != self._filled:
            self._maker.fill(slots)
            self._filled = slots.number
        self.tasks.append(task)
        self._thread.give(partial(self._do, task))

    def _do(self, task: Task) -> None:
        replies = self._replies
        self._context.run(
            lambda: replies.append(self._maker.make(task.part())),
            lambda error: replies.append(Reply([], error)),
        )
        self._tell.send_bytes(b"")

    def collect(self) -> Task:
        """Take a reply, and return its task."""
        self._done.recv_bytes()
        task = self.tasks.popleft()
        task.take(self._replies.popleft())
        return task

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


def _shut(channel: Connection) -> None:
    """End a channel for both sides, even if some child has inherited an end."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(channel.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def _leave(owner: int, channel: Connection, life: Connection, process: Any) -> None:
    """Kill a process, if it still runs, and it is one of this process."""
    is_owner = owner == os.getpid()
    if is_owner:
        _shut(channel)
    close_end(channel)
    close_end(life)
    if is_owner:
        # In a thread, because this may be the garbage collector's call: one of `threading` would
        # take locks that the interrupted code may hold.
        with contextlib.suppress(RuntimeError):  # the system, or the exit, allows no thread
            _thread.start_new_thread(_reap, (process,))


def _reap(process: Any) -> None:
    """Wait for the end of a process that was killed, and close what this one has of it."""
    with contextlib.suppress(Exception):  # another thread was first
        process.join()


def _after_fork() -> None:
    global _starting
    _starting = threading.Lock()  # another thread of the parent may have held it
    close_ends()


atexit.register(close_ends)  # after loaders have been closed: their handler is always a later one
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
