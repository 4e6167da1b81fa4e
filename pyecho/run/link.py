"""Links: threads that make something of every batch of a stage, and a queue after them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from pyecho import _core
from pyecho._core import BufferExhausted, Closed
from pyecho.fitted import queue_of
from pyecho.items.sharing import own
from pyecho.items.spec import EchoInfo
from pyecho.run.trace import span
from pyecho.state.position import BATCH, LAST_END, Position, Snapshot, with_ends


def to_state(emission: Any) -> list[Any]:
    """Return a batch and the columns of its info, without its type, which is pyecho's own."""
    if isinstance(emission, tuple) and len(emission) == 2 and isinstance(emission[1], EchoInfo):
        return [emission[0], *emission[1]]
    return [emission]


def of_state(batch: Any, *info: Any) -> Any:
    """Return what `to_state` was given, of what it returned."""
    return (batch, EchoInfo(*info)) if info else batch


class Link:
    """Takes emissions from a stage, in any number of threads, and queues what is made of them.

    The order is kept: threads take turns in taking an emission and a place in the queue, and fill
    their places in any order. An exception reaches the consumer instead of the result.
    """

    def __init__(
        self,
        upstream: Any,  # the node before, with `take`, `at_end` and `counts`
        make: Callable[[Any, int, int], Any],  # of (emission, epoch, its number in the epoch)
        *,
        name: str,  # also of its spans in a trace
        prefetch: int,
        threads: int = 1,  # `work` is their job
        fetch: Callable[[Any, int, int], Any] | None = None,  # makes what the consumer gets
        within: Callable[[], AbstractContextManager[object]] = nullcontext,  # in which threads work
        # Turn a result into a batch and the columns of its info, and these into a result.
        to_state: Callable[[Any], list[Any]] = to_state,
        of_state: Callable[..., Any] = of_state,
    ) -> None:
        self.name = name
        self.threads = threads
        self._upstream = upstream
        self._make = make
        self._within = within
        self._to_state = to_state
        self._of_state = of_state
        self._turn = threading.Lock()
        self._epoch = 0
        self._number = 0
        self._before = 0  # iterations that an earlier process has taken
        self._ends_due = 0  # ends of iterations that it has counted, which are still to come
        self._made: deque[list[Any]] = deque()  # and what it had made ahead, entries of a state
        self.queue = _core.ObjectStage(queue_of(prefetch), transform=fetch)
        self.take, self.counts = self.queue._take, self.queue._counts_of_taken
        self._had = (0, 0)  # uses and fresh items taken so far

    @property
    def at_end(self) -> bool:
        """True if everything was taken from the queue."""
        return bool(self.queue._at_end)

    def begin(self, saved: Snapshot, taken: tuple[int, int]) -> tuple[int, int]:
        """Begin where a snapshot was taken, or afresh; return what was taken from the queue then.

        `taken`: from the node upstream. `work` has returned in every thread.
        """
        self._before, delivered, made = saved.links.get(self.name, (*taken, []))
        at = Position(epoch=saved.at.epoch, iterations=self._before, delivered=delivered)
        self.queue._begin(at)
        self._epoch, self._number = saved.at.epoch + taken[0], taken[1]
        self._ends_due = max(0, self._before - taken[0])
        self._had = self._upstream.counts()
        self._made = deque(made)
        return self._before, delivered

    def state(self, saved: Callable[[Any], Any]) -> list[Any]:
        """Return what was taken from the queue, and what was made ahead of that.

        `saved`: see `Adapter`. `work` has returned in every thread.
        """
        from pyecho.state.plain import encoded  # only states need it

        queue = self.queue._state(payload=True, with_held=False)
        made: list[list[Any]] = [[BATCH, *self._to_state(each)] for each in queue["columns"][0]]
        made = with_ends(made, queue, queue["iterations"] - self._before) + list(self._made)
        # The consumer may change the batches that it gets later.
        entries = []
        for kind, *batch in made:
            plain = [encoded(own(each), saved) for each in batch[:1]]
            entries.append([kind, *plain, *map(saved, batch[1:])])
        return [queue["iterations"], queue["delivered"], entries]

    def work(self) -> None:
        """Make one result after the other, until the last end or until a stage stops or pauses."""
        # The queue is closed, too, once another thread has met the end.
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
                emission = self._upstream.take()
            except StopIteration:
                # Before end_here(): the consumer may begin the next epoch right after it.
                over = self._upstream.at_end
                self._epoch += 1
                self._number = 0
                if self._ends_due > 0:
                    self._ends_due -= 1
                    queue.abort(place)
                    return True
                queue.end_here(place, over)
                return not over
            except (BufferExhausted, MemoryError) as error:
                queue.tell(place, error)  # the consumer may make room, and ask again
                return True
            except BaseException as error:
                queue.abort(place)
                if isinstance(error, Closed) and not self._upstream.at_end:
                    raise  # stopped or paused
                queue.fail(error)
                return False
            epoch, number = self._epoch, self._number
            self._number += 1
            had, self._had = self._had, self._upstream.counts()
            of = self._had[0] - had[0], self._had[1] - had[1]
        try:
            with span(self.name):
                made: Any = self._make(emission, epoch, number)
        except BaseException as error:
            queue.fill_error(place, error)
            return True
        del emission  # only the consumer decides how long a batch lives
        queue.fill(place, made, of)
        return True

    def _fill_again(self, place: Any, kind: int, *batch: Any) -> bool:
        """Fill a place with what a state holds. Return False at the last end."""
        if kind == BATCH:
            self.queue.fill(place, self._of_state(own(batch[0]), *batch[1:]))
        else:
            self.queue.end_here(place, kind == LAST_END)
        return kind != LAST_END
