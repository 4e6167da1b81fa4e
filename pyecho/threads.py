"""Threads of pyecho's that serve one epoch after the other, and their end when Python exits."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

__all__ = ["EXIT_SECONDS", "Answer", "Worker", "close_at_exit"]

EXIT_SECONDS = 2.0
"""How long the exit waits for threads that are still inside a source or an augmentation."""

Job = Callable[[], None]

_alive: set[Worker] = set()
_closing: weakref.WeakSet[Any] = weakref.WeakSet()


class Worker:
    """A daemon thread that runs one job after the other, until `end`.

    No method blocks but `join`, and all may be called by the garbage collector, at any point.
    """

    submit: Callable[[Job], None]
    """Have a job run after those before it. It must not raise."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.submit = self._jobs.put  # without a frame of Python's, where Ctrl-C could be raised
        self._thread = threading.Thread(
            target=_work, args=(self._jobs, self), name=f"pyecho-{name}", daemon=True
        )
        self._thread.start()
        _alive.add(self)

    def end(self) -> None:
        """End the thread after the jobs that were submitted."""
        self._jobs.put(None)

    @property
    def alive(self) -> bool:
        """Whether the thread has not ended."""
        return self._thread.is_alive()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)


class Answer:
    """What another thread will answer. Waiting for it may be interrupted, and done again."""

    def __init__(self) -> None:
        self._given: SimpleQueue[None] = SimpleQueue()
        self._values: list[Any] = []

    def give(self, value: Any) -> None:
        """Answer. The first answer counts."""
        self._values.append(value)
        self._given.put(None)

    def wait(self) -> Any:
        """Wait for the answer and return it; answers Ctrl-C."""
        while not self._values:
            self._given.get()
        return self._values[0]


def _work(jobs: SimpleQueue[Job | None], worker: Worker) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # what it refers to must not live until the next one comes
    _alive.discard(worker)


def close_at_exit(run: Any) -> None:
    """Have ``run.close()`` called when Python exits, if `run` is alive then."""
    _closing.add(run)


def _forget() -> None:
    # In a forked child there are no threads to end, and their locks may be held for ever.
    _alive.clear()
    _closing.clear()


os.register_at_fork(after_in_child=_forget)


@atexit.register
def _close_all() -> None:
    for run in list(_closing):
        run.close()
    # Also threads of runs that were abandoned long ago: a thread that Python has to kill on its way
    # out dies wherever it is, and in the destructor of a tensor that aborts the process.
    deadline = time.monotonic() + EXIT_SECONDS
    for worker in list(_alive):
        worker.join(max(0.0, deadline - time.monotonic()))
