"""Iterators for other libraries, which lose nothing if Ctrl-C lands in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

LOOKS = 2
"""Batches that Keras and tf.data look at beforehand, to know what they are like."""


class Converted(Iterator[Any]):
    """Returns ``convert(batch)`` of each batch, and calls `end` after the last one.

    A batch is kept until its conversion is done, which begins again after an interrupt.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        convert: Callable[[Any], Any],
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self._batches = batches
        self._convert = convert
        self._end = end
        self._taken: list[Any] = []  # one batch at most; taken and kept in one call

    def __next__(self) -> Any:
        """Return the next one."""
        if not self._taken:
            self._taken.extend(islice(self._batches, 1))
        if not self._taken:
            self._end()
            raise StopIteration
        made = self._convert(self._taken[0])
        del self._taken[0]
        return made


class Iterations:
    """The iterations of a loader, one after the other, for libraries that look at batches first.

    An iteration that is left within its first `LOOKS` batches was a look: the next one begins with
    the same batches and goes on from there. Any other one that is left is over, as with the loader.
    """

    def __init__(self, loader: Any) -> None:
        loader._run.engine.let_grow()
        self._loader = loader
        self._look: _Look | None = None

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator for the next iteration, which begins with the first ``next()``."""
        return _Iteration(self)

    def look(self) -> _Look:
        """Return what the last iteration has looked at, or begin another."""
        if self._look is None:
            self._look = _Look(iter(self._loader))
        return self._look

    def end(self, look: _Look) -> None:
        """Begin another iteration next time; this one was no look."""
        if self._look is look:
            self._look = None


class _Look:
    def __init__(self, batches: Iterator[Any]) -> None:
        self.batches = batches
        self.seen: list[Any] = []
        """The first `LOOKS` batches, and one that is about to be returned."""


class _Iteration(Iterator[Any]):
    """One of `Iterations`."""

    def __init__(self, iterations: Iterations) -> None:
        self._iterations = iterations
        self._look: _Look | None = None
        self._place = 0  # in `seen`

    def __next__(self) -> Any:
        if self._look is None:
            self._look = self._iterations.look()
        place, look = self._place, self._look
        if place == LOOKS:
            self._iterations.end(look)
        if place == len(look.seen):
            look.seen.extend(islice(look.batches, 1))  # takes and keeps it in one call
            if place == len(look.seen):
                self._iterations.end(look)
                raise StopIteration
        batch = look.seen[place]
        if place == LOOKS:
            del look.seen[place]
        else:
            self._place = place + 1
        return batch
