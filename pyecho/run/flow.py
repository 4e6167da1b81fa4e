"""A flow: passes that flow into each other, with the pipeline and the threads that serve them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyecho import _core
from pyecho._core import CheckpointError
from pyecho.config import Config
from pyecho.fitted import queue_of
from pyecho.run.context import CallerContext
from pyecho.run.extent import Extent
from pyecho.run.pipeline import Pipeline
from pyecho.run.reading import Reading
from pyecho.run.threads import ThreadPool
from pyecho.source import Source
from pyecho.state.position import PAYLOAD, Snapshot, position_of, without_items
from pyecho.warn import warn


class Flow:
    """Passes that flow into each other, from their beginning to their end; see `Run`.

    Refers to nothing of the run. Once `begin` has returned, Ctrl-C may cut short any call, and
    calling it again is safe then.
    """

    saved: Snapshot  # where it began, without the items
    extent: Extent
    stage: Any  # the native one that the consumer takes from
    pipeline: Pipeline | None = None  # there is none in an epoch without items
    batches: int | None = None  # of each iteration, if that is known

    def __init__(
        self, source: Source, config: Config, thread_pool: ThreadPool, context: CallerContext
    ) -> None:
        self.token: object | None = None
        """Of the running iteration, None between two."""
        self.end_is_due = False
        """The last iteration ended by the count of its batches, before its end came."""
        self.is_left = False
        """In its iteration: until the next one begins, states are of here."""
        self._source = source
        self._config = config
        self._crew = thread_pool
        self._context = context  # of the thread that began the flow, or had it go on
        self._told: int | None = None  # items of a pass, if that was right when it began
        self._read_before = 0
        self._is_working = False  # the threads have their jobs

    def begin(
        self,
        snapshot: Snapshot,
        reading: Reading,
        extent: Extent,
        pipeline_for: Callable[[Any, Snapshot], Pipeline],
    ) -> None:
        """Begin at a snapshot, once the first item is read and the extent is settled.

        After an exception the pipeline may have begun in part: drop it.
        """
        source, config, at = self._source, self._config, reading.at
        if snapshot.is_fresh:
            at = replace(snapshot.at, items=extent.items, uses=extent.uses)
        elif at.uses != extent.uses:
            raise CheckpointError(
                f"the passes of this run have {extent.uses} uses each, and had {at.uses} when the "
                "state was taken: the sources have other lengths"
            )
        self._told = None if source.unsure else reading.told
        if self._told != reading.told and config.steps_per_epoch is None and not config.bounded:
            warn_of_source(
                source,
                f"{source.unsure}: the loader goes on without a length, and what len(loader) has "
                "told is wrong; pass steps_per_epoch=",
            )
        snapshot, first = replace(snapshot, at=at), reading.example()
        self.extent, self._excess = extent, reading.excess
        self.saved = replace(snapshot, unspent=None, held=[], links={})
        if not first:  # the stage is at its end
            self.stage = _core.ObjectStage(queue_of(1))
            self.stage.close()
            return
        pipeline = pipeline_for(first[0], snapshot)
        self.batches = config.batches_of(extent.longest)
        if extent.longest and self.batches == 0:
            warn(
                f"the {extent.longest} items of the source, used {config.most_uses:g} times each, "
                f"do not fill one batch of {config.batch_size}, and drop_last=True drops it: the "
                "epoch has no batch; lower batch_size, or pass drop_last=False",
                RuntimeWarning,
            )
        self._read_before = pipeline.stats().read
        pipeline.begin(snapshot, reading)
        self.pipeline, self.stage = pipeline, pipeline.consumed

    @property
    def at_end(self) -> bool:
        """True if nothing is left."""
        return self.pipeline is None or bool(self.stage._at_end)

    @property
    def at_last_batch(self) -> bool:
        """True if the consumer has the last batch of its iteration, as far as that is known."""
        return bool(self.stage._delivered == self.batches)

    @property
    def is_epoch(self) -> bool:
        """True if an iteration that ends here is an epoch.

        One over an iterator that has nothing left is none.
        """
        exhausted = self.pipeline is None and self.saved.is_fresh and self._source.one_shot
        return self.token is not None and not exhausted

    # ------------------------------------------------------------ threads

    def work(self) -> None:
        """Have the threads do what there is to do."""
        if self.pipeline is not None and not self._is_working:
            self._crew.give(self.pipeline.jobs(self._context))
            self._is_working = True

    def leave(self) -> None:
        """Have the threads end where they stand: a state is of here, until another flow begins.

        Another iteration can go on over an iterator. Every other pass is dropped, by its thread,
        unless it has a state of its own, which states need.
        """
        assert self.pipeline is not None
        self.is_left = True
        self._is_working = False
        self.pipeline.set_paused(True)
        if not self._source.one_shot and self._source.holder is None:
            self._crew.leave_source(self.pipeline.echo.stage._leave_source)
        self._crew.let_go()

    def go_on(self) -> None:
        """Undo that, once the threads have left."""
        assert self.pipeline is not None
        self._crew.wait()
        self.pipeline.set_paused(False)
        self._context = CallerContext()
        self.is_left = False

    def stop_if_failed(self) -> None:
        """Stop the other stages if a link has failed, which ends only the consumer's stage."""
        if self.pipeline is not None and not self.pipeline.at_end:
            self.pipeline.stop(self._crew)

    @contextmanager
    def _at_rest(self, *, reading: bool) -> Iterator[None]:
        """Keep the threads of the links out of the stages, and if `reading` also the feeder."""
        first = 0 if reading else 1
        if self.is_left:
            self._crew.wait(first=first)
        if self.pipeline is None or self.is_left or not self._crew.has(first=first):
            yield
            return
        try:
            self._is_working = False
            self.pipeline.set_paused(True)
            self._crew.wait(first=first)
            yield
        finally:
            self.pipeline.set_paused(False)
            self.work()

    # ------------------------------------------------------------ what can be told of it

    def state(self, *, payload: bool) -> dict[str, Any]:
        """Return the position, the source's own state and, if `payload`, the items."""
        assert self.pipeline is not None
        source, config = self._source, self._config
        has_state = source.holder is not None
        if self.end_is_due and config.drop_last and not (has_state or source.native):
            payload = payload and source.one_shot  # uses of items there are to be dropped
        with self._at_rest(reading=has_state):
            has_order = source.order(None) is not None
            native = self.pipeline.state(payload=payload, with_held=has_state)
            extent, epoch = self.extent, self.saved.at.epoch
            position = position_of(native, epoch, extent.items, extent.uses)
            state = {"source": source.state() if has_state else None, "position": position}
        if not payload:
            return state | without_items(position, config, has_order=has_order)
        return state | {name: native[name] for name in PAYLOAD if name in native}

    def warn_of_lengths(self, *, completed: bool) -> None:
        """Warn at the end of an iteration if a pass had more items than told, or fewer."""
        pipeline, told, config = self.pipeline, self._told, self._config
        if self._excess:
            self._excess.clear()
            warn_of_source(
                self._source,
                f"has more than the {told} items it tells: the rest of the pass is left out; have "
                "len() tell all items, or pass steps_per_epoch=",
            )
            return
        # Counts of one whole pass alone tell its length.
        whole = completed and self.at_end and self.saved.is_fresh
        if pipeline is None or not whole or pipeline.echo.stage._failed:
            return
        if config.flows or not config.splits_batches:
            return
        read = pipeline.stats().read - self._read_before
        if told not in (None, read):
            warn_of_source(
                self._source,
                f"told {told} items and yielded {read}, so len(loader) was wrong; a collate_fn "
                "that makes more or fewer examples of a batch does that: have len() tell what "
                "comes, or pass steps_per_epoch=",
            )


def warn_of_source(source: Source, text: str) -> None:
    """Warn of what a source does: the text goes on after ``the source (its type)``."""
    warn(f"the source ({type(source.object).__name__}) {text}", RuntimeWarning)
