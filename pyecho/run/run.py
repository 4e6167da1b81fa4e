"""The run of a loader: its pipeline and its threads, and one epoch after the other."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from pyecho import _core
from pyecho._core import EchoError
from pyecho.config import Config
from pyecho.run.again import cannot_go_back
from pyecho.run.context import CallerContext
from pyecho.run.engine import Engine, Flow, warn_of_source
from pyecho.run.extent import Extent, Group, pass_follows, settle
from pyecho.run.pipeline import MakePipeline
from pyecho.run.reading import Reading
from pyecho.run.saving import state_of
from pyecho.run.threads import close_at_exit
from pyecho.source import Source
from pyecho.state.position import Position, Snapshot

if TYPE_CHECKING:
    from pyecho.state.check import SavedState


class Run:
    """Owns the pipeline and the threads of a loader, from its first epoch to its end.

    All that lives one epoch, or several epochs that flow into each other, is one `Flow`, which is
    replaced as a whole::

        none ──next(): first item, extent, begin──▶ running ──end, set_epoch()──▶ none
                                                     │   ▲
                              another pass flows on  │   │  next()
                            or the iteration is left ▼   │
                                              between, left

    A beginning is all or nothing: an exception drops what was begun, and the next ``next()`` begins
    again at the same position: the beginning of `epoch`, or where `saved` was taken.

    `_finish` and `close` may be called from any thread, and by the garbage collector at any point.
    So there is no lock: a call that changes the run takes its turn, and leaves its work to another
    one if that is under way. Finalizers stop or pause, and never read or wait. Once an epoch has
    begun, Ctrl-C may cut short any call, and the next one goes on.
    """

    _closed = True  # until it is made
    # Attributes, because a late finalizer finds the names of this module gone.
    _getpid = staticmethod(os.getpid)
    # Of the process that this one was forked from: memory on a device cannot be freed here.
    _of_parents: ClassVar[list[Any]] = []

    def __init__(
        self,
        source: Source,
        config: Config,
        make_pipeline: MakePipeline,
        *,
        by_consumer: bool,  # see Wiring
        group: Group | None = None,  # runs that have equally many batches
    ) -> None:
        self.source = source
        self.config = config
        self._make_engine = partial(Engine, source, config, make_pipeline, by_consumer=by_consumer)
        self.epoch = 0
        """Number of the running epoch, else of the next one."""
        self.group = group
        self.longest: int | None = None
        """Items of a pass that decide the batches, in the epoch that began last; None: unknown."""
        self._forget()
        self._closed = False
        close_at_exit(self)

    def _forget(self) -> None:
        self._process = self._getpid()
        self._turns = _core.Turns()
        self.engine: Engine = self._make_engine()
        self.flow: Flow | None = None
        """The passes that have begun."""
        self.saved: SavedState | None = None
        """A state that was loaded: the next epoch begins there."""
        self.reading: Reading | None = None
        """Of a beginning that goes on, or of one that failed over a source that cannot go back."""
        self._extent: Extent | None = None  # that ranks have settled, until the epoch has begun

    def _leave_parent(self) -> None:
        """Start anew in a forked process: the threads stayed in its parent."""
        if self._process != self._getpid():
            of_parent = self.engine
            self._of_parents.append((of_parent, self.flow, self.reading))
            self._forget()
            self.engine.wiring = of_parent.wiring
            self.engine.crew.is_closed = self._closed

    # ------------------------------------------------------------ from any thread

    def iterate(self) -> Iterator[Any]:
        """Return an iterator for the next epoch, which begins with its first ``next()``.

        The run knows only its token, so it dies with its iterators.
        """
        self.engine.crew.check_open()
        token = object()
        begin, finish = partial(self._begin, token), partial(self._finish, token)
        batches: Iterator[Any] = _core.iterate(SimpleNamespace(begin=begin, finish=finish))
        return batches

    def _begin(self, token: object) -> tuple[Any, int]:
        """Begin the next epoch, at the first ``next()``, and end an unfinished one.

        Returns the consumer's stage and its generation, by which the iterator knows that a later
        iteration has begun.
        """
        self._leave_parent()
        begun: tuple[Any, int] = self._turns.run(partial(self._begin_in_turn, token))
        return begun

    def _finish(self, token: object, completed: bool) -> None:
        """End the epoch of an iteration: at its end, or because its iterator died."""
        if not self._closed and self._process == self._getpid():
            self._turns.post(partial(self._finish_in_turn, token, completed))

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the next epoch; an unfinished one ends."""
        self._turns.post(partial(self._set_epoch, epoch))

    def state(self, payload: bool) -> dict[str, Any]:
        """Return the arguments of `whole_state`: the epoch, the position and what comes with it."""
        if self._process != self._getpid() and self.flow is not None:
            raise EchoError(
                "the iteration of this loader is one of the process that was forked, where the "
                "items are; take its state there"
            )
        self._leave_parent()
        found: dict[str, Any] = self._turns.run(partial(state_of, self, payload))
        return found

    def load(self, saved: SavedState) -> None:
        """Have the next iteration go on where a state was taken; an unfinished one ends."""
        self._leave_parent()
        self._turns.run(partial(self._load_in_turn, saved))

    def close(self) -> None:
        """End everything. Threads inside a source end when the source returns."""
        was_closed = self._closed
        self._closed = self.engine.crew.is_closed = True  # first: waits in a turn check it
        if self._process == self._getpid():
            self._turns.post(self._end)
            self.source.close()
        elif not was_closed:
            self._of_parents.append((self.engine, self.flow, self.reading))

    def __del__(self) -> None:
        """End with the loader and its iterators."""
        if not self._closed:
            self.close()

    def copied(self) -> tuple[Any, ...]:
        """Return what a copy of the loader goes on with, see `restore`."""
        return self.epoch + self.unfinished, copy.copy(self.engine.wiring), self.saved

    def restore(self, epoch: int, wiring: Any, saved: SavedState | None) -> None:
        """Be the run of a copy, before it begins."""
        self.epoch, self.engine.wiring, self.saved = epoch, wiring, saved

    @property
    def flows(self) -> bool:
        """True if the next epoch has begun by itself."""
        return self.flow is not None and self.flow.token is None

    @property
    def unfinished(self) -> bool:
        """True if an iteration has begun and is not at its end."""
        return self.flow is not None and self.flow.token is not None

    @property
    def left(self) -> bool:
        """True if an iteration was left half-way that the next one does not go on with."""
        return self.flow is not None and self.flow.is_left and not self.source.one_shot

    @property
    def only_end_is_left(self) -> bool:
        """True if a loaded state has only the end of its epoch left, and another flows on."""
        snapshot = None if self.saved is None else self.saved.snapshot
        if snapshot is None or not self._flows_on:
            return False
        items = self.source.length() if snapshot.at.passes is None else snapshot.at.items
        return snapshot.taken[1] == self.config.batches_of(items)

    @property
    def _flows_on(self) -> bool:
        """True if another iteration follows that of this epoch without a break."""
        flows = self.config.steps_per_epoch is not None
        return flows or pass_follows(self.config, self.source, self.epoch)

    # ------------------------------------------------------------ in turn

    def _begin_in_turn(self, token: object) -> tuple[Any, int]:
        self.engine.crew.check_open()
        flow = self.flow
        if flow is None or flow.token is not token:  # else Ctrl-C has cut short what follows
            flow = self._next_flow(token)
        if flow.is_left:
            self.engine.go_on(flow)
        self.engine.work(flow)
        return flow.stage, flow.stage._generation  # no other iteration has retired this one yet

    def _next_flow(self, token: object) -> Flow:
        """End the iteration before this one, and return the flow of this one."""
        self._end_counted()
        self._retire()
        if self.unfinished:
            self._leave()
        flow = self.flow
        if flow is None:
            return self._start(token)
        # First: where the warning is an error, the next attempt goes on.
        flow.end_is_due, flow.token = False, token
        if flow.is_left:
            warn_of_source(
                self.source,
                "is an iterator, and an iteration over it was left half-way: this one goes on "
                "where that one was left; for epochs of their own pass something that can be "
                "iterated again",
            )
        return flow

    def _start(self, token: object) -> Flow:
        """Begin the next passes, or the ones of a state."""
        engine, config, source, saved = self.engine, self.config, self.source, self.saved
        engine.crew.wait()
        snapshot, state = Snapshot(at=Position(epoch=self.epoch)), None
        if saved is not None and saved.snapshot is not None:
            snapshot, state = saved.snapshot, saved.source
        elif saved is not None:
            source.load(saved.source)
        if saved is not None:
            source.set_order(saved.order)
            source.seen.expect(saved.seen)
        reading, context = self.reading, CallerContext()
        if reading is None or not self._keeps_reading:
            self.reading = reading = Reading(source, config, snapshot, state)
        try:
            engine.open(reading, context)
            extent = self._extent or settle(config, source, self.group, reading, epoch=self.epoch)
            reading.check()
            self._extent = extent if self.group is not None else None  # others may have begun
            flow = engine.begin(snapshot, reading, extent, context)
            close_at_exit(self)  # before whatever the source has registered
        except BaseException:
            engine.drop()
            if not self._keeps_reading:
                self.reading = None
                engine.abandon(reading)
            raise
        # No call in between, so that Ctrl-C finds all of it done or nothing.
        flow.token = token
        self.flow, self.longest = flow, flow.extent.longest
        self.saved = self.reading = self._extent = None
        reading.forget()
        return flow

    @property
    def _keeps_reading(self) -> bool:
        """True if what a beginning has read cannot be read again: of an iterator, for example."""
        source, saved = self.source, self.saved
        goes_on = source.one_shot or source.holder is source.object
        return goes_on and (saved is None or saved.source is None)

    def _finish_in_turn(self, token: object, completed: bool) -> None:
        flow = self.flow
        if flow is None or flow.token is not token:
            return  # another one has begun since, or it is over
        at_end = flow.at_end
        if completed or at_end:
            if at_end:
                self.engine.stop_if_failed(flow)
            self._pass_on(flow, following=not at_end)
            flow.warn_of_lengths(self.source, completed=completed)
            return
        self._end_counted()
        if flow.token is token:
            self.engine.leave(flow)

    def _pass_on(self, flow: Flow, *, following: bool) -> None:
        """Go to the next epoch, wholly or not at all. `following`: it has begun by itself."""
        epoch = self.epoch + flow.is_epoch(self.source)
        self.flow, self.epoch, flow.token = flow if following else None, epoch, None

    def _end_counted(self) -> None:
        """End an iteration of which only the end is left: loops that count stop before it."""
        flow = self.flow
        if flow is None or flow.token is None or not flow.at_last_batch:
            return
        if not (flows_on := self._flows_on):
            self.engine.stop(self.source.open_pass())
        flow.end_is_due = True
        self._pass_on(flow, following=flows_on)
        flow.stage._retire(completed=True)  # Ctrl-C comes after it

    def _set_epoch(self, epoch: int) -> None:
        self._end_counted()
        if epoch == self.epoch and not self.unfinished:
            return
        if self.saved is not None:
            self.source.set_order(self.saved.order)  # of all epochs
        self.saved = self._extent = None
        if not self.source.one_shot:
            self.reading = None
            self._retire()
            self._leave()
        self.epoch = epoch

    def _end(self, reading: Reading | None = None) -> None:
        self.engine.drop()
        self.engine.crew.let_go()
        self.flow, self.reading, self._extent = None, reading, None

    def _retire(self) -> None:
        """End the iterators there are; they raise `Closed`, unless they are at their end."""
        if self.flow is not None:
            self.flow.stage._retire(completed=False)

    def _leave(self) -> None:
        """Drop the rest of the epoch that has begun; over an iterator, keep it for the next one."""
        flow = self.flow
        if flow is not None and self.source.one_shot and not flow.at_end:
            self.engine.leave(flow)
        elif flow is not None:
            self.engine.stop()
            self._pass_on(flow, following=False)

    # ------------------------------------------------------------ states

    def _load_in_turn(self, saved: SavedState) -> None:
        self.engine.crew.check_open()
        reading, stays = self.reading, saved.source is None and self.source.one_shot
        if stays and saved.snapshot is not None:
            if self.engine.stats().read or (reading is not None and reading.is_open):
                raise cannot_go_back(self.source)
            reading = None
        self._retire()
        self._end(reading if stays else None)
        self.epoch = saved.epoch
        self.engine.resume(saved.lists)
        self.saved = saved
