"""Ctrl-C while the main thread is inside a call: once, and in storms."""

from __future__ import annotations

import itertools
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import pytest


def interrupted(call: Callable[[], Any], inside: threading.Event) -> None:
    """Make the call in the main thread, where Ctrl-C ends it soon after `inside` is set."""
    main = threading.main_thread()

    def interrupt() -> None:
        assert inside.wait(60)
        time.sleep(0.1)
        signal.pthread_kill(main.ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        thread.join()


@contextmanager
def unraisable_interrupts_dropped() -> Iterator[None]:
    """Drop what Python cannot raise: interrupts in finalizers, and threads that do not start.

    `threading.Thread.start` waits for the new thread, which fails if Ctrl-C cuts that wait short.
    """
    hook = sys.unraisablehook

    def drop(unraisable: Any) -> None:
        unstarted = "thread started" in (unraisable.err_msg or "")
        unmade = "tqdm" in repr(unraisable.object)  # a bar that was cut short while it was made
        if unraisable.exc_type is not KeyboardInterrupt and not unstarted and not unmade:
            hook(unraisable)

    sys.unraisablehook = drop
    try:
        yield
    finally:
        sys.unraisablehook = hook


@contextmanager
def ended_by_alarm(seconds: float) -> Iterator[None]:
    """Raise an AssertionError in the main thread where it hangs."""

    def hangs(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"no end after {seconds} seconds")

    handler = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


class Storm:
    """Sends SIGINT to the main thread at random moments, as long as it is open and under fire.

    After a few calls in a row that were interrupted one is left alone. Otherwise a call that takes
    longer than the pauses of the storm would be made for ever.

    ::

        with Storm(seed) as storm:
            completed = storm.strikes(call)  # False: a KeyboardInterrupt came out of it

    Attributes
    ----------
    interrupts
        Number of KeyboardInterrupts so far.
    """

    MOST_SECONDS = 20e-3
    MOST_IN_A_ROW = 16

    def __init__(self, seed: int) -> None:
        self.interrupts = 0
        self._in_a_row = 0
        self._random = random.Random(seed)
        self._under_fire = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Storm:
        self._handler = signal.signal(signal.SIGINT, self._interrupt)
        self._interval = sys.getswitchinterval()
        self._dropping = unraisable_interrupts_dropped()
        self._dropping.__enter__()
        sys.setswitchinterval(1e-6)  # else a thread gets its turn every 5 ms
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._under_fire = False
        self._over.set()
        self._thread.join()
        sys.setswitchinterval(self._interval)
        self._dropping.__exit__(None, None, None)
        signal.signal(signal.SIGINT, self._handler)

    def _send(self) -> None:
        # Mostly close together, but with pauses in which something longer can be done.
        while not self._over.wait(self._random.random() ** 12 * self.MOST_SECONDS):
            if self._under_fire:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._under_fire:
            self._under_fire = False
            self.interrupts += 1
            raise KeyboardInterrupt

    def strikes(self, call: Callable[[], Any]) -> bool:
        """Make a call that may be interrupted once; return True if it was not."""
        try:
            self._under_fire = self._in_a_row < self.MOST_IN_A_ROW
            call()
            self._under_fire = False
        except KeyboardInterrupt:
            self._in_a_row += 1
            return False
        self._in_a_row = 0
        return True


def taken_by(
    batches_of: Callable[[], Iterable[Any]], strikes: Callable[[Callable[[], Any]], bool], most: int
) -> Iterator[Any]:
    """Yield what an iteration yields, taken while `strikes` interrupts calls; at most so many.

    What was taken lies in a list that only C code appends to, so nothing is lost here.
    """
    iterators: list[Any] = []
    while not iterators:
        strikes(lambda: iterators.append(iter(batches_of())))
    while True:
        taken: list[Any] = []
        completed = strikes(partial(taken.extend, itertools.islice(iterators[0], most)))
        yield from taken
        if completed and len(taken) < most:
            return
