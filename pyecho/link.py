"""Links: threads that make something of every batch of a stage, and the queue behind them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from pyecho import _core
from pyecho._core import Closed
from pyecho.config import Config
from pyecho.tracing import span


class Link:
    """Takes emissions from a stage, in any number of threads, and queues what is made of them.

    The order is kept: threads take turns in taking an emission and a place in the queue, and fill
    their places in any order. An exception reaches the consumer in the place of what was to be
    made. A link refers to nothing of the run.
    """

    def __init__(
        self,
        upstream: Any,  # a native stage, or an object with its _take, _at_end and _set_paused
        make: Callable[[Any, int, int], Any],  # of (emission, epoch, its number in the epoch)
        *,
        name: str,  # also of its spans in a trace
        prefetch: int,
        threads: int = 1,  # `work` is their job
        fetch: Callable[[Any, int, int], Any] | None = None,  # makes what the consumer gets
        within: Callable[[], AbstractContextManager[object]] = nullcontext,  # in which threads work
    ) -> None:
        self.name = name
        self.threads = threads
        self._upstream = upstream
        self._make = make
        self._within = within
        self._turn = threading.Lock()
        self._epoch = 0
        self._number = 0
        self.queue = _core.EchoQueue(
            Config(factor=1, shuffle_buffer=0, prefetch=prefetch), transform=fetch
        )

    def begin(self, epoch: int) -> None:
        """Start again with this epoch. `work` has returned in every thread."""
        self.queue._begin(epoch, None)
        self._epoch = epoch
        self._number = 0

    def work(self) -> None:
        """Make what there is to make, until the last epoch ends or a stage is stopped or paused."""
        # Closed is also what the queue is once another thread has met the end.
        with self._within(), suppress(Closed):
            while self._step():
                pass

    def _step(self) -> bool:
        queue = self.queue
        with self._turn:
            place = queue.reserve()
            try:
                emission = self._upstream._take()
            except StopIteration:
                # Before end_here(): the consumer may begin the next epoch right behind it.
                over = self._upstream._at_end
                self._epoch += 1
                self._number = 0
                queue.end_here(place, over)
                return not over
            except BaseException as error:
                queue.abort(place)
                if isinstance(error, Closed) and not self._upstream._at_end:
                    raise  # stopped or paused
                queue.fail(error)
                return False
            epoch, number = self._epoch, self._number
            self._number += 1
        try:
            with span(self.name):
                made = self._make(emission, epoch, number)
        except BaseException as error:
            queue.fill_error(place, error)
            return True
        del emission  # the consumer alone decides how long a batch lives
        queue.fill(place, made)
        return True
