"""The run of a loader: its epochs, for any thread and any process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from pyecho import _core
from pyecho._core import EchoError
from pyecho.run.epochs import Epochs
from pyecho.run.saving import state_of
from pyecho.run.threads import close_at_exit

if TYPE_CHECKING:
    from pyecho.state.check import SavedState


class Run:
    """Lets any thread call the `Epochs` of a loader, from the first one to the end.

    Any thread may call any method, and the garbage collector `_finish` and `close`, at any point.
    So there is no lock: a call that changes the epochs takes its turn, and leaves its work to
    another one if that is under way. Finalizers stop or pause, and never read or wait.
    """

    _closed = True  # until it is made
    # Attributes, because a late finalizer finds the names of this module gone.
    _getpid = staticmethod(os.getpid)
    # Of the process that this one was forked from: memory on a device cannot be freed here.
    _of_parents: ClassVar[list[Epochs]] = []

    def __init__(self, epochs: Epochs) -> None:
        self.epochs = epochs
        self._turns = _core.Turns()
        self._process = self._getpid()
        self._closed = False
        close_at_exit(self)

    def _leave_parent(self) -> None:
        """Start anew in a forked process."""
        if self._process != self._getpid():
            self._of_parents.append(self.epochs)
            self.epochs = self.epochs.anew()
            self._turns = _core.Turns()
            self._process = self._getpid()

    def iterate(self) -> Iterator[Any]:
        """Return an iterator for the next epoch, which begins with its first ``next()``.

        The run knows only its token, so it dies with its iterators.
        """
        self.epochs.thread_pool.check_open()
        token = object()
        begin, finish = partial(self._begin, token), partial(self._finish, token)
        batches: Iterator[Any] = _core.iterate(SimpleNamespace(begin=begin, finish=finish))
        return batches

    def _begin(self, token: object) -> tuple[Any, int]:
        self._leave_parent()
        begun: tuple[Any, int] = self._turns.run(partial(self.epochs.begin, token))
        close_at_exit(self)  # before whatever the source has registered
        return begun

    def _finish(self, token: object, completed: bool) -> None:
        if not self._closed and self._process == self._getpid():
            self._turns.post(partial(self.epochs.finish, token, completed))

    def state(self, payload: bool) -> dict[str, Any]:
        """Return the arguments of `whole_state`: the epoch, the position and what comes with it."""
        if self._process != self._getpid() and self.epochs.flow is not None:
            raise EchoError(
                "the iteration of this loader is one of the process that was forked, where the "
                "items are; take its state there"
            )
        self._leave_parent()
        state: dict[str, Any] = self._turns.run(partial(state_of, self.epochs, payload))
        return state

    def seek(self, to: int | SavedState) -> None:
        """Have the next epoch be that of a number, or go on where a state was taken.

        An unfinished one ends.
        """
        self._leave_parent()
        if isinstance(to, int):
            self._turns.post(partial(self.epochs.seek_epoch, to))
        else:
            self._turns.run(partial(self.epochs.load, to))

    def close(self) -> None:
        """End everything. Threads inside a source end when the source returns."""
        was_closed, epochs = self._closed, self.epochs
        self._closed = epochs.thread_pool.is_closed = True  # first: waits in a turn check it
        if self._process == self._getpid():
            self._turns.post(epochs.end)
            epochs.source.close()
        elif not was_closed:
            self._of_parents.append(epochs)

    def __del__(self) -> None:
        """End with the loader and its iterators."""
        if not self._closed:
            self.close()
