"""Links: threads that make something of every batch of a stage, and the queue behind them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from pyecho import _core
from pyecho._core import Closed
from pyecho.config import Config

__all__ = ["Link", "Make", "Upstream"]

Make = Callable[[Any, int, int], Any]
"""Makes something of (emission, epoch, number of the emission in its epoch)."""


class Upstream(Protocol):
    """The input of a link: a native stage, or an object with the same methods."""

    def _take(self) -> Any:
        """Return the next emission; raise `StopIteration` at the end of an epoch."""

    @property
    def _at_end(self) -> bool:
        """True if no epoch follows."""

    def _set_paused(self, paused: bool) -> None:
        """Have `_take` raise `Closed` while it would wait, until this is undone."""


class Link:
    """Takes emissions from a stage, in any number of threads, and queues what is made of them.

    The order is kept: threads take turns in taking an emission and a place in the queue, and fill
    their places in any order. An exception reaches the consumer in the place of what was to be
    made. A link refers to nothing of the run.
    """

    def __init__(
        self,
        upstream: Upstream,
        make: Make,
        *,
        name: str,
        threads: int,  # `work` is their job
        prefetch: int,
        fetch: Callable[[Any, int, int], Any] | None = None,  # makes what the consumer gets
    ) -> None:
        self.name = name
        self.threads = threads
        self._upstream = upstream
        self._make = make
        self._turn = threading.Lock()
        self._begun = 0  # how often
        self._over = True
        self._epoch = 0
        self._number = 0
        self.queue = _core.EchoQueue(
            Config(factor=1, shuffle_buffer=0, prefetch=prefetch), transform=fetch
        )

    def begin(self, epoch: int) -> None:
        """Start again with this epoch. `work` has returned in every thread."""
        self.queue._begin(epoch, None)
        self._begun += 1
        self._over = False
        self._epoch = epoch
        self._number = 0

    def work(self) -> None:
        """Make what there is to make, until the last epoch ends or a stage is stopped or paused."""
        try:
            begun = self._begun
            while self._step(begun):
                pass
        except Closed:
            pass
        except BaseException as error:  # of pyecho's own making
            self.queue.fail(error)

    def _step(self, begun: int) -> bool:
        queue = self.queue
        with self._turn:
            if self._over or begun != self._begun:  # this thread is late: others do that now
                return False
            place = queue.reserve()
            try:
                emission = self._upstream._take()
            except StopIteration:
                # All before end_here(): the consumer may begin the next epoch right behind it.
                over = self._over = self._upstream._at_end
                self._epoch += 1
                self._number = 0
                queue.end_here(place, over)
                return not over
            except BaseException as error:
                if isinstance(error, Closed) and not self._upstream._at_end:
                    queue.abort(place)  # stopped or paused
                    raise
                self._over = True
                queue.abort(place)
                queue.fail(error)
                return False
            epoch, number = self._epoch, self._number
            self._number += 1
        try:
            made = self._make(emission, epoch, number)
        except BaseException as error:
            queue.fill_error(place, error)
            return True
        del emission  # the consumer alone decides how long a batch lives
        queue.fill(place, made)
        return True
