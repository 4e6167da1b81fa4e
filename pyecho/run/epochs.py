"""One epoch after the other: the flow of passes, the pipeline and the threads that serve it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyecho.config import Config
from pyecho.fitted import Fitted, Wiring
from pyecho.run.context import CallerContext
from pyecho.run.extent import Extent, pass_follows
from pyecho.run.flow import Flow, warn_of_source
from pyecho.run.pipeline import MakePipeline, Pipeline
from pyecho.run.ranks import Group, settle
from pyecho.run.reading import Reading
from pyecho.run.reread import cannot_go_back
from pyecho.run.threads import ThreadPool
from pyecho.source import Source
from pyecho.state.position import Position, Snapshot
from pyecho.stats import EchoStats

if TYPE_CHECKING:
    from pyecho.state.check import SavedState


class Epochs:
    """Begins, ends and leaves one epoch after the other, in the turn of a `Run`.

    All that lives one epoch, or several epochs that flow into each other, is one `Flow`, which is
    replaced as a whole::

        none ──next(): first item, extent, begin──▶ running ──end, set_epoch()──▶ none
                                                     │   ▲
                              another pass flows on  │   │  next()
                            or the iteration is left ▼   │
                                              between, left

    A beginning is all or nothing: an exception drops what was begun, and the next ``next()`` begins
    again at the same position: the beginning of `number`, or where `saved` was taken. Once an epoch
    has begun, Ctrl-C may cut short any call, and the next one goes on.
    """

    def __init__(
        self,
        source: Source,
        config: Config,
        make_pipeline: MakePipeline,
        wiring: Wiring,
        group: Group | None = None,  # runs that have equally many batches
    ) -> None:
        self.source = source
        self.config = config
        self.wiring = wiring
        self.number = 0
        """Number of the running epoch, else of the next one."""
        self.longest: int | None = None
        """Items of a pass that decide the batches, in the epoch that began last; None: unknown."""
        self.thread_pool = ThreadPool()
        self.flow: Flow | None = None
        """The passes that have begun."""
        self.saved: SavedState | None = None
        """A state that was loaded: the next epoch begins there."""
        self.reading: Reading | None = None
        """Of a beginning that goes on, or of one that failed over a source that cannot go back."""
        self.pipeline: Pipeline | None = None
        """Serves one flow after the other, as long as it has room for their items."""
        self._make_pipeline = make_pipeline
        self._group = group
        self._extent: Extent | None = None  # that ranks have settled, until the epoch has begun
        self._past = EchoStats()  # of pipelines that are gone

    def anew(self) -> Epochs:
        """Return those of a forked process: threads and items stay in its parent."""
        found = Epochs(self.source, self.config, self._make_pipeline, self.wiring, self._group)
        found.number, found.longest, found.saved = self.number, self.longest, self.saved
        found.thread_pool.is_closed = self.thread_pool.is_closed
        return found

    def copied(self) -> tuple[Any, ...]:
        """Return what a copy of the loader goes on with, see `restore`."""
        return self.number + self.unfinished, copy.copy(self.wiring), self.saved

    def restore(self, number: int, wiring: Wiring, saved: SavedState | None) -> None:
        """Be those of a copy, before they begin."""
        self.number, self.wiring, self.saved = number, wiring, saved

    def stats(self) -> EchoStats:
        """Return the counts and times of all epochs so far."""
        pipeline = self.pipeline  # another thread may drop it meanwhile
        return self._past if pipeline is None else self._past + pipeline.stats()

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
        return flows or pass_follows(self.config, self.source, self.number)

    # ------------------------------------------------------------ in turn

    def begin(self, token: object) -> tuple[Any, int]:
        """Begin the next epoch, and end an unfinished one.

        Returns the consumer's stage and its generation, by which the iterator knows that a later
        iteration has begun.
        """
        self.thread_pool.check_open()
        flow = self.flow
        if flow is None or flow.token is not token:  # else Ctrl-C has cut short what follows
            flow = self._next_flow(token)
        if flow.is_left:
            flow.go_on()
        flow.work()
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
        config, source, saved = self.config, self.source, self.saved
        self.thread_pool.wait()
        snapshot, state = Snapshot(at=Position(epoch=self.number)), None
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
        flow = Flow(source, config, self.thread_pool, context)
        try:
            self._open(reading, context)
            extent = self._extent or settle(config, source, self._group, reading, epoch=self.number)
            reading.check()
            self._extent = extent if self._group is not None else None  # others may have begun
            flow.begin(snapshot, reading, extent, self._pipeline_for)
            if flow.pipeline is None and snapshot.is_fresh:  # otherwise it has yielded items before
                self._warn_of_nothing()
        except BaseException:
            self._drop()
            if not self._keeps_reading:
                self.reading = None
                self.thread_pool.leave_source(reading.leave)
            raise
        # No call in between, so that Ctrl-C finds all of it done or nothing.
        flow.token = token
        self.flow, self.longest = flow, extent.longest
        self.saved = self.reading = self._extent = None
        reading.forget()
        return flow

    def _open(self, reading: Reading, context: CallerContext) -> None:
        """Read the first item, in the thread that reads the others."""
        self.source.prepare()
        if self.wiring.by_consumer:
            reading.open()
        else:
            self.thread_pool.do("feeder", partial(context.run, reading.open, reading.fail))
        self._past += EchoStats(source_seconds=reading.seconds)

    def _pipeline_for(self, first: Any, snapshot: Snapshot) -> Pipeline:
        """Return the pipeline, made anew where the source has grown, or more room is needed."""
        config, pipeline = self.config, self.pipeline
        capacity = config.capacity_for(snapshot.at.items)
        if pipeline is not None and snapshot.is_fresh and capacity <= pipeline.fitted.capacity:
            return pipeline
        self._drop()
        # Of batch echoing; a native buffer makes room by itself.
        unspent = 0 if snapshot.unspent is None else len(snapshot.unspent.numbers)
        there = 0 if config.adaptive else capacity  # otherwise they are items that have left
        ahead = max(1, unspent - there)
        fitted = Fitted(config, capacity, config.prefetch, self.wiring, slots_ahead=ahead)
        self.pipeline = pipeline = self._make_pipeline(self.source, fitted, first)
        self._know_lists(pipeline.echo.lists)
        return pipeline

    def _know_lists(self, lists: tuple[bool, ...] | None) -> None:
        """Keep which lists in a batch are columns, if that is known."""
        if lists is not None:
            self.wiring.lists = lists

    def _warn_of_nothing(self) -> None:
        reason = "check its length and its filters"
        if self.source.one_shot and self.stats().read > 0:
            reason = (
                "it is an iterator and has been read to its end; for several epochs pass something "
                "that can be iterated again (a list, a Dataset, a DataLoader, an object with "
                "__iter__)"
            )
        warn_of_source(self.source, f"yielded nothing: {reason}")

    @property
    def _keeps_reading(self) -> bool:
        """True if what a beginning has read cannot be read again: of an iterator, for example."""
        source, saved = self.source, self.saved
        goes_on = source.one_shot or source.holder is source.object
        return goes_on and (saved is None or saved.source is None)

    def finish(self, token: object, completed: bool) -> None:
        """End the epoch of an iteration: at its end, or because its iterator died."""
        flow = self.flow
        if flow is None or flow.token is not token:
            return  # another one has begun since, or it is over
        at_end = flow.at_end
        if completed or at_end:
            if at_end:
                flow.stop_if_failed()
            self._pass_on(flow, following=not at_end)
            flow.warn_of_lengths(completed=completed)
            return
        self._end_counted()
        if flow.token is token:
            flow.leave()

    def _pass_on(self, flow: Flow, *, following: bool) -> None:
        """Go to the next epoch, wholly or not at all. `following`: it has begun by itself."""
        epoch = self.number + flow.is_epoch
        self.flow, self.number, flow.token = flow if following else None, epoch, None

    def _end_counted(self) -> None:
        """End an iteration of which only the end is left: loops that count stop before it."""
        flow = self.flow
        if flow is None or flow.token is None or not flow.at_last_batch:
            return
        if not (flows_on := self._flows_on):
            if (read := self.source.open_pass()) is not None:
                self.thread_pool.do_last(partial(_read_end, read))
            self._stop()
        flow.end_is_due = True
        self._pass_on(flow, following=flows_on)
        flow.stage._retire(completed=True)  # Ctrl-C comes after it

    def seek_epoch(self, epoch: int) -> None:
        """Choose the number of the next epoch; an unfinished one ends."""
        self._end_counted()
        if epoch == self.number and not self.unfinished:
            return
        if self.saved is not None:
            self.source.set_order(self.saved.order)  # of all epochs
        self.saved = self._extent = None
        if not self.source.one_shot:
            self.reading = None
            self._retire()
            self._leave()
        self.number = epoch

    def _stop(self) -> None:
        """Have the threads end, and drop what the nodes hold."""
        if self.pipeline is not None:
            self.pipeline.stop(self.thread_pool)
        self.thread_pool.let_go()

    def _drop(self) -> None:
        """Stop the pipeline, and let it go."""
        pipeline = self.pipeline
        if pipeline is None:
            return
        pipeline.stop(self.thread_pool)
        past = self._past + replace(pipeline.stats(), occupancy=0.0, outstanding_leases=0)
        self.pipeline = None
        self._past = past

    def end(self, reading: Reading | None = None) -> None:
        """Drop all; `reading`: what goes on."""
        self._drop()
        self.thread_pool.let_go()
        self.flow, self.reading, self._extent = None, reading, None

    def _retire(self) -> None:
        """End the iterators there are; they raise `Closed`, unless they are at their end."""
        if self.flow is not None:
            self.flow.stage._retire(completed=False)

    def _leave(self) -> None:
        """Drop the rest of the epoch that has begun; over an iterator, keep it for the next one."""
        flow = self.flow
        if flow is not None and self.source.one_shot and not flow.at_end:
            flow.leave()
        elif flow is not None:
            self._stop()
            self._pass_on(flow, following=False)

    def load(self, saved: SavedState) -> None:
        """Have the next epoch go on where a state was taken; an unfinished one ends."""
        self.thread_pool.check_open()
        reading, stays = self.reading, saved.source is None and self.source.one_shot
        if stays and saved.snapshot is not None:
            if self.stats().read or (reading is not None and reading.is_open):
                raise cannot_go_back(self.source)
            reading = None
        self._retire()
        self.end(reading if stays else None)
        self.number = saved.epoch
        self._know_lists(saved.lists)
        self.wiring.resumes = True
        self.saved = saved


def _read_end(read: Iterator[Any]) -> None:
    with suppress(Exception):  # after the last item, it reaches nobody
        next(read, None)
