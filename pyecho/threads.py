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

__all__ = ["EXIT_SECONDS", "Job", "Worker", "close_at_exit"]

EXIT_SECONDS = 2.0
"""How long the exit waits for threads that are still inside a source or an augmentation."""

_alive: set[threading.Thread] = set()
_to_close: set[weakref.ref[Any]] = set()


class Job:
    """A function that a worker calls; `done` is set afterwards. The function must not raise."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function: Callable[[], None] | None = function
        self.done = threading.Event()

    def run(self) -> None:
        """Call the function and let go of it."""
        function, self._function = self._function, None
        try:
            if function is not None:
                function()
        finally:
            self.done.set()


class Worker:
    """A daemon thread that runs one job after the other, until `end`.

    No method blocks but `join`.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=_work, args=(self._jobs,), name=f"pyecho-{name}", daemon=True
        )
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Have `job` run after those before it."""
        self._jobs.put(job)

    def end(self) -> None:
        """End the thread after the jobs that were submitted."""
        self._jobs.put(None)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)


def _work(jobs: SimpleQueue[Job | None]) -> None:
    thread = threading.current_thread()
    _alive.add(thread)
    try:
        while (job := jobs.get()) is not None:
            job.run()
            del job  # what it refers to must not live until the next one comes
    finally:
        _alive.discard(thread)


def close_at_exit(run: Any) -> None:
    """Have ``run.close()`` called when Python exits, if `run` is alive then.

    It is called before all exit handlers that were registered before, those of PyTorch and of
    multiprocessing among them: they would end worker processes that a source still waits for.
    """
    _to_close.add(weakref.ref(run, _to_close.discard))
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    for reference in tuple(_to_close):
        run = reference()
        if run is not None:
            run.close()
    # Also threads of runs that were abandoned long ago: a thread that Python has to kill on its way
    # out dies wherever it is, and in the destructor of a tensor that aborts the process.
    deadline = time.monotonic() + EXIT_SECONDS
    for thread in tuple(_alive):
        thread.join(max(0.0, deadline - time.monotonic()))


def _forget() -> None:
    # In a forked child there are no threads to end, and their locks may be held for ever.
    _alive.clear()
    _to_close.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
