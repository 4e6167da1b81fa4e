"""Threads of pyecho's that serve one epoch after the other, and their end when Python exits."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

from pyecho import _core
from pyecho._core import Closed

SLICE_SECONDS = 0.05  # a wait checks this often whether its run was closed
EXIT_SECONDS = 2.0  # the exit waits for threads that are still inside a source or an augmentation


class _Leaving:
    """Marks threads that are about to drop an iterator of a source, while in a ``with`` block.

    That may take long: a DataLoader's waits for its worker processes. The exit waits for it, as
    Python does where the main thread drops the iterator.
    """

    def __init__(self) -> None:
        self.threads: set[int | None] = set()

    def __enter__(self) -> None:
        self.threads.add(threading.get_ident())

    def __exit__(self, *exception: object) -> None:
        self.threads.discard(threading.get_ident())


leaving_source = _Leaving()


def _leaving(leave: Callable[[], None]) -> None:
    with leaving_source:
        leave()


_alive: set[threading.Thread] = set()  # iterate over copy(), which other threads cannot disturb
_to_close: set[weakref.ref[Any]] = set()
_exiting = False  # the threads are being ended, and no other may start
_starting = threading.RLock()  # for a thread to start, or for the exit to begin


class Flag:
    """A `threading.Event` that is set once. It stays fit for use if Ctrl-C cuts short a wait."""

    def __init__(self) -> None:
        self.is_set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """End all waits. Call it once."""
        self.is_set = True  # first: a wait that is cut short may keep the lock
        self._lock.release()

    def wait(self, timeout: float) -> bool:
        """Return True once the flag is set, False after the timeout."""
        if not self.is_set and self._lock.acquire(timeout=timeout):
            self._lock.release()
        return self.is_set


class Worker:
    """A daemon thread that calls one function after the other. It ends with the worker.

    Ctrl-C may cut short any method, and calling it again is safe then.
    """

    def __init__(self, name: str) -> None:
        self.ending = False
        """True if the thread was told to end."""
        self._jobs: SimpleQueue[tuple[Callable[[], None], Flag] | None] = SimpleQueue()
        self._last: Flag | None = None  # set once everything that was given is done
        self._over = Flag()
        self._at_end: list[Callable[[], None]] = []
        arguments = self._jobs, self._over, self._at_end
        self._thread = threading.Thread(
            target=_work, args=arguments, name=f"pyecho-{name}", daemon=True
        )
        with _starting:
            if _exiting:  # an exit handler or a daemon thread of the program's still iterates
                raise Closed("Python is exiting, and no thread can be started any more")
            _alive.add(self._thread)
            try:
                self._thread.start()
            except Exception as error:  # after Ctrl-C it may run, and leaves the set by itself
                if str(error) == "release unlocked lock":  # Ctrl-C in a wait of the library's
                    raise KeyboardInterrupt from None
                _alive.discard(self._thread)
                raise

    @property
    def is_current(self) -> bool:
        """True in the worker's own thread."""
        return self._thread is threading.current_thread()

    def give(self, function: Callable[[], None]) -> Flag:
        """Have a function called in turn, and then the flag set. It must not raise."""
        done = Flag()
        self._last = None  # it is unknown, should Ctrl-C come in between
        self._jobs.put((function, done))
        self._last = done
        return done

    def give_last(self, function: Callable[[], None]) -> bool:
        """Have a function called after the others; return False if the thread is over."""
        if not self.ending:
            self.give(function)
            return True
        self._at_end.append(function)
        if self._over.is_set:
            with suppress(ValueError):  # it was called meanwhile
                self._at_end.remove(function)
                return False
        return True

    def end(self) -> None:
        """End the thread after the functions that were given."""
        self.ending = True
        self._jobs.put(None)

    def done(self, timeout: float) -> bool:
        """Wait until nothing is left to do, or for the end of a thread that was told to end."""
        if not self.ending:
            last = self.give(lambda: None) if self._last is None else self._last
            return last.wait(timeout)
        # Not by join() alone: before Python 3.13 a running thread counts as ended once Ctrl-C has
        # cut short a join().
        if self.is_current or not self._over.wait(timeout):
            return False
        self._thread.join()
        return True

    def __del__(self) -> None:
        """End the thread, if there is one: Ctrl-C may have cut short the beginning."""
        if hasattr(self, "_jobs"):
            self.end()


class ThreadPool:
    """The threads of a run: the feeder, then the threads of the links.

    Ctrl-C may cut short any method, and calling it again is safe then. It refers to nothing of the
    run.
    """

    def __init__(self) -> None:
        self.is_closed = False  # the run
        self._workers: list[Worker] = []

    def check_open(self) -> None:
        """Raise `Closed` once the run is closed, as waits do."""
        if self.is_closed:
            raise Closed("this EchoLoader is closed; make a new one")

    @property
    def is_current(self) -> bool:
        """True in a thread of the thread_pool."""
        return any(worker.is_current for worker in self._workers)

    def has(self, *, first: int) -> bool:
        """Return True if there are threads from number `first` on."""
        return len(self._workers) > first

    def give(self, jobs: list[tuple[str, Callable[[], None]]]) -> None:
        """Give each job to a thread."""
        for name, _ in jobs[len(self._workers) :]:
            self._workers.append(Worker(name))
        for worker, (_, job) in zip(self._workers, jobs, strict=False):
            worker.give(job)

    def do(self, name: str, function: Callable[[], None]) -> None:
        """Call a function in the first thread, and wait for its end."""
        self.give([(name, function)])
        self._wait_for(self._workers[0])

    def do_last(self, function: Callable[[], None]) -> None:
        """Have the first thread call a function after its jobs, or this one if there is none.

        Does not wait for another thread.
        """
        if not self._workers or not self._workers[0].give_last(function):
            function()

    def leave_source(self, leave: Callable[[], None]) -> None:
        """Have the thread that reads drop a pass, which may belong to it."""
        self.do_last(partial(_leaving, leave))

    def wait(self, *, first: int = 0) -> None:
        """Wait until the threads from number `first` on are done; forget the ones let go."""
        for worker in self._workers[first:]:
            self._wait_for(worker)
        self._workers = [worker for worker in self._workers if not worker.ending]

    def _wait_for(self, worker: Worker) -> None:
        while not worker.done(SLICE_SECONDS):
            self.check_open()

    def let_go(self) -> None:
        """Tell the threads to end; they may still be inside the source."""
        for worker in self._workers:
            worker.end()

    def join(self, seconds: float) -> None:
        """Wait this long at most for the threads that were told to end."""
        deadline = time.monotonic() + seconds
        for worker in tuple(self._workers):
            if worker.ending:
                worker.done(max(0.0, deadline - time.monotonic()))


def _work(
    jobs: SimpleQueue[tuple[Callable[[], None], Flag] | None],
    over: Flag,
    at_end: list[Callable[[], None]],
) -> None:
    _core.name_thread(threading.current_thread().name)
    try:
        while (job := jobs.get()) is not None:
            function, done = job
            del job  # what it refers to must not live until the next one comes
            function()
            del function
            done.set()
        while at_end:
            at_end.pop()()
    finally:
        over.set()
        while at_end:  # given meanwhile
            at_end.pop()()
        _alive.discard(threading.current_thread())


def close_at_exit(run: Any) -> None:
    """Have ``run.close()`` called when Python exits, if `run` is alive then.

    That happens before all exit handlers that are registered by now. Among them are PyTorch's and
    multiprocessing's, which end worker processes that a source may still wait for.
    """
    _to_close.add(weakref.ref(run, _to_close.discard))
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    global _exiting
    with _starting:
        _exiting = True
    _core.begin_exit(_started_by_python())
    threading.excepthook = partial(_report, threading.excepthook)
    for reference in _to_close.copy():
        run = reference()
        if run is not None:
            run.close()
    # Also threads of runs that were abandoned long ago: a thread that Python has to kill on its way
    # out dies wherever it is, and in the destructor of a tensor that aborts the process.
    if not _all_ended(EXIT_SECONDS / 2):
        for thread in _alive.copy():  # a source may be looking for its next item, and never find it
            leaving = thread.ident in leaving_source.threads
            if thread.ident is not None and not leaving and thread.is_alive():
                _core.exit_thread(thread.ident)
        _all_ended(EXIT_SECONDS / 2)
        for thread in _alive.copy():
            if thread.ident in leaving_source.threads:
                thread.join()


def _started_by_python() -> list[int]:
    this = threading.current_thread()
    return [
        thread.ident
        for thread in threading.enumerate()
        if thread.ident is not None
        and thread is not this
        and not isinstance(thread, threading._DummyThread)
    ]


def _close_rest() -> None:
    # An exit handler that began an iteration has moved _close_all() to a place that Python has
    # passed already.
    if not _exiting:
        _close_all()


def _report(report: Callable[[Any], Any], failure: Any) -> None:
    """Report the failure of a thread, except `Closed`: the exit has closed loaders in use.

    The only threads left are daemon threads, which Python would end without a report as well.
    """
    if not issubclass(failure.exc_type, Closed):
        report(failure)


def _all_ended(timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    for thread in _alive.copy():
        if thread.is_alive():
            thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in _alive.copy())


def _forget() -> None:
    # In a forked child there are no threads to end, and their locks may be held for ever. A child
    # that was forked while its parent exits may still do work of its own.
    global _exiting, _starting
    _exiting = False
    _starting = threading.RLock()
    leaving_source.threads.clear()
    _alive.clear()
    _to_close.clear()


atexit.register(_close_rest)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
