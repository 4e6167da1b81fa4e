"""The engine of a run: its pipeline and its threads, which serve all epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from pyecho import _core
from pyecho.config import Config
from pyecho.run.cursor import NOTHING
from pyecho.run.extent import Group, settle
from pyecho.run.flow import Flow
from pyecho.run.notices import warn_of_no_batch, warn_of_nothing, warn_of_other_rows
from pyecho.run.pipeline import MakePipeline, Pipeline
from pyecho.run.reading import Reading
from pyecho.run.threads import Crew
from pyecho.source import Source
from pyecho.state.position import Snapshot
from pyecho.stats import EchoStats


class Engine:
    """Makes the pipeline with the first item, and gives its jobs to threads.

    Refers to nothing of the run. A call may be cut short by Ctrl-C; calling it again is safe then.

    Parameters
    ----------
    by_consumer
        The consumer's thread reads the source, and there are no threads.
    """

    def __init__(
        self, source: Source, config: Config, make_pipeline: MakePipeline, *, by_consumer: bool
    ) -> None:
        self.by_consumer = by_consumer
        self.wiring = config.wiring
        """Of the pipeline that is made next."""
        self.crew = Crew()
        self._source = source
        self._config = config
        self._make_pipeline = make_pipeline
        self._pipeline: Pipeline | None = None
        self._past = EchoStats()  # of pipelines that are gone

    def keep_batches_of(self, inner: Engine) -> None:
        """Tell the inner one of two engines how many of its batches the pool of this one keeps."""
        config, wiring = self._config, inner.wiring
        if config.batch_size is None:  # otherwise no batch is kept that one could be warned of
            kept = config.capacity + config.prefetch + 1 + config.leases_of_link
            inner.wiring = replace(wiring, leases=wiring.leases + kept)
            self.wiring = replace(self.wiring, reads_few=True)

    def know_lists(self, lists: tuple[bool, ...] | None) -> None:
        """Keep which lists in a batch are columns, if that is known."""
        if lists is not None:
            self.wiring = replace(self.wiring, lists=lists)

    def let_grow(self) -> None:
        """Give no warning of batches that the consumer's library keeps for a while."""
        self.wiring = replace(self.wiring, grows_quietly=True)

    def begin(
        self, flow: Flow, group: Group | None, *, epoch: int, check: Callable[[], None]
    ) -> None:
        """Read the first item, settle the extent, and begin. `check`: see `Crew`."""
        reading = flow.reading
        assert reading is not None
        self._read_first(flow, reading, check)
        if self._source.unsure and reading.told is not None:
            reading.told = None  # first: where the warning is an error, the next attempt goes on
            if self._config.steps_per_epoch is None and not self._config.bounded:
                warn_of_other_rows(self._source)
        if not flow.is_settled:
            config, source = self._config, self._source
            flow.extent = settle(config, source, group, reading, flow.saved, epoch=epoch)
            flow.is_settled = True
        snapshot = replace(flow.saved, at=reading.at)
        if reading.error is not None and not snapshot.is_fresh:
            raise reading.error
        first = reading.example() if reading.error is None else NOTHING
        if first is NOTHING:
            self._start_empty(flow, reading)
        else:
            self._start(flow, snapshot, first)

    def _read_first(self, flow: Flow, reading: Reading, check: Callable[[], None]) -> None:
        """Read the first item, in the thread that reads the others."""
        if self.by_consumer:
            reading.open()
        else:  # a second time, if Ctrl-C has cut short the first: then nothing is left to do
            self.crew.do("feeder", partial(reading.open_in, flow.context), check)
        self._past += EchoStats(source_seconds=reading.seconds)
        reading.seconds = 0.0

    def _start(self, flow: Flow, snapshot: Snapshot, first: Any) -> None:
        """Begin passes whose items are like the first one, and whose extent is settled."""
        config, at, extent = self._config, snapshot.at, flow.extent
        if snapshot.is_fresh:
            at = replace(at, items=extent.items, uses=extent.uses)
            snapshot = replace(snapshot, at=at)
        capacity = config.capacity_for(at.items)
        pipeline = self._pipeline
        if pipeline is not None and (not snapshot.is_fresh or capacity > pipeline.config.capacity):
            self.drop()  # the source has grown, or more room is needed
        if self._pipeline is None:
            # Of batch echoing and of a pool on a device; a native buffer makes room by itself.
            unspent = 0 if snapshot.unspent is None else len(snapshot.unspent.numbers)
            there = 0 if config.adaptive else capacity  # otherwise they are items that have left
            wiring = replace(self.wiring, slots_ahead=max(1, unspent - there))
            fitted = replace(config, shuffle_buffer=capacity, wiring=wiring)
            pipeline = self._make_pipeline(self._source, fitted, first, self.by_consumer)
            self.know_lists(pipeline.echo.lists)
            self._pipeline = pipeline
        batches = config.batches_of(extent.longest)
        if extent.longest and batches == 0:
            warn_of_no_batch(config, extent.longest)
        flow.begin(self._pipeline, snapshot, batches)

    def _start_empty(self, flow: Flow, reading: Reading) -> None:
        """Begin an epoch without items, and so without a pipeline: its stage is at its end."""
        error, reading.error = reading.error, None  # its traceback refers to the reading
        ended = _core.EchoQueue(Config(prefetch=1))
        if error is None:
            ended.close()
            if flow.saved.is_fresh:  # otherwise it has yielded the items before
                warn_of_nothing(self._source, self.stats().read)
        else:
            ended.fail(error)
        flow.begin_empty(ended, failed=error is not None)

    def work(self, flow: Flow) -> None:
        """Have the threads do what a flow has to do."""
        if not flow.is_working:
            self.crew.give(flow.jobs)
            flow.is_working = True

    @contextmanager
    def at_rest(self, flow: Flow, *, reading: bool, check: Callable[[], None]) -> Iterator[None]:
        """Keep the threads of the links out of the stages, and if `reading` also the feeder."""
        first = 0 if reading else 1
        if flow.pipeline is None or flow.is_left or not self.crew.has(first=first):
            yield
            return
        try:
            flow.is_working = False
            flow.pipeline.set_paused(True)
            self.crew.wait(check, first=first)
            yield
        finally:
            flow.pipeline.set_paused(False)
            self.work(flow)

    def stop(self) -> None:
        """Have the threads end, and drop what the nodes hold."""
        if self._pipeline is not None:
            self._pipeline.stop()
        self.crew.let_go()

    def drop(self) -> None:
        """Stop the pipeline, and let it go."""
        pipeline = self._pipeline
        if pipeline is None:
            return
        pipeline.stop()
        past = self._past + replace(pipeline.stats(), occupancy=0.0, outstanding_leases=0)
        self._pipeline = None
        self._past = past

    def stats(self) -> EchoStats:
        """Return the counts and times of all epochs so far."""
        pipeline = self._pipeline  # another thread may drop it meanwhile
        return self._past if pipeline is None else self._past + pipeline.stats()
