"""The engine of a run serves all epochs; a flow is all that lives as long as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyecho import _core
from pyecho._core import CheckpointError
from pyecho.config import Config
from pyecho.fitted import Fitted, Wiring, queue_of
from pyecho.run.context import CallerContext
from pyecho.run.extent import Extent
from pyecho.run.pipeline import MakePipeline, Pipeline
from pyecho.run.reading import Reading
from pyecho.run.threads import Crew, leaving_source
from pyecho.source import Source
from pyecho.state.position import Snapshot
from pyecho.stats import EchoStats
from pyecho.warn import warn


@dataclass
class Flow:
    """Passes that flow into each other, from their beginning to their end; see `Run`."""

    saved: Snapshot  # where it began, without the items
    context: CallerContext  # of the thread that began the flow, or had it go on
    extent: Extent
    excess: list[int]  # of `Reading`
    pipeline: Pipeline | None  # there is none in an epoch without items
    stage: Any  # the native one that the consumer takes from
    batches: int | None = None  # of each iteration, if that is known
    told: int | None = None  # items of a pass, if that was right when it began
    read_before: int = 0
    token: object | None = None  # of the running iteration, None between two
    end_is_due: bool = False  # of the last iteration, which ended by the count of its batches
    is_left: bool = False  # in its iteration: until the next one begins, states are of here
    is_working: bool = False  # the threads have their jobs

    @property
    def at_end(self) -> bool:
        """True if nothing is left."""
        return self.pipeline is None or bool(self.stage._at_end)

    @property
    def at_last_batch(self) -> bool:
        """True if the consumer has the last batch of its iteration, as far as that is known."""
        return bool(self.stage._delivered == self.batches)

    def is_epoch(self, source: Source) -> bool:
        """Return True if an iteration that ends here is an epoch.

        One over an iterator that has nothing left is none.
        """
        exhausted = self.pipeline is None and self.saved.is_fresh and source.one_shot
        return self.token is not None and not exhausted

    def warn_of_lengths(self, source: Source, *, completed: bool) -> None:
        """Warn at the end of an iteration if a pass had more items than told, or fewer."""
        pipeline, told = self.pipeline, self.told
        if self.excess:
            self.excess.clear()
            warn_of_source(
                source,
                f"has more than the {told} items it tells: the rest of the pass is left out; have "
                "len() tell all items, or pass steps_per_epoch=",
            )
            return
        # Counts of one whole pass alone tell its length.
        whole = completed and self.at_end and self.saved.is_fresh
        if pipeline is None or not whole or pipeline.echo.stage._failed:
            return
        config = pipeline.fitted.config
        if config.flows or not config.splits_batches:
            return
        read = pipeline.stats().read - self.read_before
        if told not in (None, read):
            warn_of_source(
                source,
                f"told {told} items and yielded {read}, so len(loader) was wrong; a collate_fn "
                "that makes more or fewer examples of a batch does that: have len() tell what "
                "comes, or pass steps_per_epoch=",
            )


class Engine:
    """Makes the pipeline with the first item, and gives its jobs to threads.

    Refers to nothing of the run. Once a flow has begun, a call may be cut short by Ctrl-C, and
    calling it again is safe then.
    """

    def __init__(
        self, source: Source, config: Config, make_pipeline: MakePipeline, *, by_consumer: bool
    ) -> None:
        self.wiring = Wiring(by_consumer=by_consumer)
        self.crew = Crew()
        self._source = source
        self._config = config
        self._make_pipeline = make_pipeline
        self._pipeline: Pipeline | None = None
        self._past = EchoStats()  # of pipelines that are gone

    def keep_batches_of(self, inner: Engine) -> None:
        """Tell the inner one of two engines how many of its batches the pool of this one keeps."""
        config = self._config
        if config.batch_size is None:  # otherwise no batch is kept that one could be warned of
            inner.wiring.held += config.capacity + config.prefetch + 1 + config.held_by_links
            self.wiring.reads_few = True

    def know_lists(self, lists: tuple[bool, ...] | None) -> None:
        """Keep which lists in a batch are columns, if that is known."""
        if lists is not None:
            self.wiring.lists = lists

    def resume(self, lists: tuple[bool, ...] | None) -> None:
        """Know that a state was loaded, and the lists of its run."""
        self.know_lists(lists)
        self.wiring.resumes = True

    def open(self, reading: Reading, context: CallerContext) -> None:
        """Read the first item, in the thread that reads the others."""
        self._source.prepare()
        if self.wiring.by_consumer:
            reading.open()
        else:
            self.crew.do("feeder", partial(context.run, reading.open, reading.fail))
        self._past += EchoStats(source_seconds=reading.seconds)

    def begin(
        self, snapshot: Snapshot, reading: Reading, extent: Extent, context: CallerContext
    ) -> Flow:
        """Begin at a snapshot, once the first item is read and the extent is settled.

        After an exception the pipeline may have begun in part: `drop` it.
        """
        source, at = self._source, reading.at
        if snapshot.is_fresh:
            at = replace(snapshot.at, items=extent.items, uses=extent.uses)
        elif at.uses != extent.uses:
            raise CheckpointError(
                f"the passes of this run have {extent.uses} uses each, and had {at.uses} when the "
                "state was taken: the sources have other lengths"
            )
        config, told = self._config, None if source.unsure else reading.told
        if told != reading.told and config.steps_per_epoch is None and not config.bounded:
            warn_of_source(
                source,
                f"{source.unsure}: the loader goes on without a length, and what len(loader) has "
                "told is wrong; pass steps_per_epoch=",
            )
        snapshot, first = replace(snapshot, at=at), reading.example()
        begun = replace(snapshot, unspent=None, held=[], links={})
        if not first:  # its stage is at its end
            if snapshot.is_fresh:  # otherwise it has yielded the items before
                self._warn_of_nothing()
            stage = _core.ObjectStage(queue_of(1))
            stage.close()
            return Flow(begun, context, extent, reading.excess, None, stage)
        batches = config.batches_of(extent.longest)
        pipeline = self._pipeline_for(first[0], snapshot)
        if extent.longest and batches == 0:
            warn(
                f"the {extent.longest} items of the source, used {config.most_uses:g} times each, "
                f"do not fill one batch of {config.batch_size}, and drop_last=True drops it: the "
                "epoch has no batch; lower batch_size, or pass drop_last=False",
                RuntimeWarning,
            )
        read = pipeline.stats().read
        pipeline.begin(snapshot, reading)
        stage = pipeline.consumed
        return Flow(begun, context, extent, reading.excess, pipeline, stage, batches, told, read)

    def _pipeline_for(self, first: Any, snapshot: Snapshot) -> Pipeline:
        """Return the pipeline, made anew where the source has grown, or more room is needed."""
        config, pipeline = self._config, self._pipeline
        capacity = config.capacity_for(snapshot.at.items)
        if pipeline is not None and snapshot.is_fresh and capacity <= pipeline.fitted.capacity:
            return pipeline
        self.drop()
        # Of batch echoing; a native buffer makes room by itself.
        unspent = 0 if snapshot.unspent is None else len(snapshot.unspent.numbers)
        there = 0 if config.adaptive else capacity  # otherwise they are items that have left
        ahead = max(1, unspent - there)
        fitted = Fitted(config, capacity, config.prefetch, self.wiring, slots_ahead=ahead)
        self._pipeline = pipeline = self._make_pipeline(self._source, fitted, first)
        self.know_lists(pipeline.echo.lists)
        return pipeline

    def _warn_of_nothing(self) -> None:
        reason = "check its length and its filters"
        if self._source.one_shot and self.stats().read > 0:
            reason = (
                "it is an iterator and has been read to its end; for several epochs pass something "
                "that can be iterated again (a list, a Dataset, a DataLoader, an object with "
                "__iter__)"
            )
        warn_of_source(self._source, f"yielded nothing: {reason}")

    def work(self, flow: Flow) -> None:
        """Have the threads do what a flow has to do."""
        if flow.pipeline is not None and not flow.is_working:
            self.crew.give(flow.pipeline.jobs(flow.context))
            flow.is_working = True

    def leave(self, flow: Flow) -> None:
        """Have the threads end where they stand: a state is of here, until another flow begins.

        Another iteration can go on over an iterator. Every other pass is dropped, by its thread,
        unless it has a state of its own, which states need.
        """
        assert flow.pipeline is not None
        flow.is_left = True
        flow.is_working = False
        flow.pipeline.set_paused(True)
        if not self._source.one_shot and self._source.holder is None:
            self._end_pass(flow.pipeline.echo.stage._leave_source)
        self.crew.let_go()

    def go_on(self, flow: Flow) -> None:
        """Undo that, once the threads have left."""
        assert flow.pipeline is not None
        self.crew.wait()
        flow.pipeline.set_paused(False)
        flow.context = CallerContext()
        flow.is_left = False

    @contextmanager
    def at_rest(self, flow: Flow, *, reading: bool) -> Iterator[None]:
        """Keep the threads of the links out of the stages, and if `reading` also the feeder."""
        first = 0 if reading else 1
        if flow.is_left:
            self.crew.wait(first=first)
        if flow.pipeline is None or flow.is_left or not self.crew.has(first=first):
            yield
            return
        try:
            flow.is_working = False
            flow.pipeline.set_paused(True)
            self.crew.wait(first=first)
            yield
        finally:
            flow.pipeline.set_paused(False)
            self.work(flow)

    def stop(self, read: Iterator[Any] | None = None) -> None:
        """Have the threads end, and drop what the nodes hold.

        `read`: a pass whose items are all read, and whose end the source is to know.
        """
        if read is not None:
            self._do_last(partial(_read_end, read))
        if self._pipeline is not None:
            self._stop(self._pipeline)
        self.crew.let_go()

    def abandon(self, reading: Reading) -> None:
        """Leave what a beginning has opened that failed."""
        self._end_pass(reading.leave)

    def _stop(self, pipeline: Pipeline) -> None:
        pipeline.stop()
        self._end_pass(pipeline.echo.stage._leave_source)

    def stop_if_failed(self, flow: Flow) -> None:
        """Stop the other stages if a link has failed, which ends only the consumer's stage."""
        if flow.pipeline is not None and not flow.pipeline.at_end:
            self._stop(flow.pipeline)

    def _end_pass(self, leave: Callable[[], None]) -> None:
        self._do_last(partial(_leaving, leave))

    def _do_last(self, function: Callable[[], None]) -> None:
        """Have the thread that reads call a function: a pass may belong to it."""
        if not self.crew.do_last(function):
            function()

    def drop(self) -> None:
        """Stop the pipeline, and let it go."""
        pipeline = self._pipeline
        if pipeline is None:
            return
        self._stop(pipeline)
        past = self._past + replace(pipeline.stats(), occupancy=0.0, outstanding_leases=0)
        self._pipeline = None
        self._past = past

    def stats(self) -> EchoStats:
        """Return the counts and times of all epochs so far."""
        pipeline = self._pipeline  # another thread may drop it meanwhile
        return self._past if pipeline is None else self._past + pipeline.stats()


def _leaving(leave: Callable[[], None]) -> None:
    with leaving_source:
        leave()


def _read_end(read: Iterator[Any]) -> None:
    with suppress(Exception):  # after the last item, it reaches nobody
        next(read, None)


def warn_of_source(source: Source, text: str) -> None:
    """Warn of what a source does: the text goes on after ``the source (its type)``."""
    warn(f"the source ({type(source.object).__name__}) {text}", RuntimeWarning)
