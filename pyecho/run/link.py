"""Links: threads that make something of every batch of a stage, and the queue behind them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from pyecho import _core
from pyecho._core import Closed
from pyecho.buffer import EchoInfo
from pyecho.config import Config
from pyecho.run.ranks import Extent
from pyecho.run.trace import span
from pyecho.state.check import Flow
from pyecho.state.state import BATCH, LAST_END, with_ends


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
        to_state: Callable[[Any], list[Any]]
        | None = None,  # of what was made: batch, columns of info
        of_state: Callable[..., Any] | None = None,  # the other way round
    ) -> None:
        self.name = name
        self.threads = threads
        self._upstream = upstream
        self._make = make
        self._within = within
        self._to_state = to_state or _to_state
        self._of_state = of_state or _of_state
        self._turn = threading.Lock()
        self._epoch = 0
        self._number = 0
        self._before = 0  # iterations that an earlier process has taken
        self._made: deque[list[Any]] = deque()  # and what it had made ahead, entries of a state
        self.queue = _core.EchoQueue(
            Config(factor=1, shuffle_buffer=0, prefetch=prefetch), transform=fetch
        )

    def begin(self, epoch: int) -> None:
        """Start again with this epoch. `work` has returned in every thread."""
        self.queue._begin(epoch, Extent())
        self._epoch = epoch
        self._number = self._before = 0
        self._made.clear()

    def state(self, saved: Callable[[Any], Any]) -> list[Any]:
        """Return what was taken from the queue, and what was made ahead of that.

        `saved`: see `Adapter`. `work` has returned in every thread.
        """
        queue = self.queue._state(payload=True, with_held=False)
        made: list[list[Any]] = [[BATCH, *self._to_state(each)] for each in queue["columns"][0]]
        made = with_ends(made, queue, queue["iterations"] - self._before) + list(self._made)
        entries = [[*entry[:2], *map(saved, entry[2:])] for entry in made]
        return [queue["iterations"], queue["delivered"], entries]

    def resume(self, flow: Flow, taken: tuple[int, int]) -> tuple[int, int]:
        """Start where a state was taken, with what was made ahead then; return what was taken.

        `taken`: from the stage upstream.
        """
        self._before, delivered, made = flow.links.get(self.name, (*taken, []))
        self.queue._begin(flow.epoch, Extent(), self._before, delivered)
        self._epoch, self._number = flow.epoch + taken[0], taken[1]
        self._made = deque(made)
        return self._before, delivered

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
            if self._made:
                return self._fill_again(place, *self._made.popleft())
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
                made: Any = self._make(emission, epoch, number)
        except BaseException as error:
            queue.fill_error(place, error)
            return True
        del emission  # the consumer alone decides how long a batch lives
        queue.fill(place, made)
        return True

    def _fill_again(self, place: Any, kind: int, *batch: Any) -> bool:
        """Fill a place with what a state holds. Return False at the last end."""
        if kind == BATCH:
            self.queue.fill(place, self._of_state(*batch))
        else:
            self.queue.end_here(place, kind == LAST_END)
        return kind != LAST_END


def _to_state(emission: Any) -> list[Any]:
    """Return a batch and the columns of its info, without its type, which is pyecho's own."""
    if isinstance(emission, tuple) and len(emission) == 2 and isinstance(emission[1], EchoInfo):
        return [emission[0], *emission[1]]
    return [emission]


def _of_state(batch: Any, *info: Any) -> Any:
    return (batch, EchoInfo(*info)) if info else batch
