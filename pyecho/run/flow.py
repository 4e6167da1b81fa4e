"""All that lives as long as passes that flow into each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyecho.run.context import CallerContext
from pyecho.run.extent import Extent
from pyecho.run.pipeline import Job, Pipeline
from pyecho.run.reading import Reading
from pyecho.state.position import Snapshot


class Flow:
    """Passes that flow into each other, from their beginning to their end; see `Run`.

    Parameters
    ----------
    saved
        Where it begins.
    reading
        Reads the source there.
    """

    def __init__(self, saved: Snapshot, reading: Reading) -> None:
        self.saved = saved
        self.epoch = saved.at.epoch
        """The first one."""
        self.reading: Reading | None = reading
        """Until the flow has begun; then the stage has it, which drops it in its time."""
        self.context = CallerContext()
        """Of the thread that began the flow, or had it go on."""
        self.extent = Extent()
        self.is_settled = False
        """True if the extent is, which it is with the first item."""
        self.pipeline: Pipeline | None = None
        """None in an epoch without items."""
        self.stage: Any = None
        """The native stage that the consumer takes from; None until the flow has begun."""
        self.token: object | None = None
        """Of the running iteration, None between two."""
        self.is_left = False
        """True if the iteration was left and the source is an iterator, so that another goes on."""
        self.is_failed = False
        """True if the source has raised an exception instead of a first item."""
        self.is_counted = False
        """True if the iteration has been ended before its end was taken."""
        self.is_working = False
        """True if the threads have their jobs."""
        self._batches: int | None = None
        self._excess = reading.excess
        self.told: int | None = None
        """Items of a pass, as the source tells, until this has proved wrong."""
        self._read_before = 0

    def begin(self, pipeline: Pipeline, snapshot: Snapshot, batches: int | None) -> None:
        """Begin. `batches`: of each iteration, None if that is not known."""
        assert self.reading is not None
        self._read_before = pipeline.stats().read
        self.told = self.reading.told
        pipeline.begin(snapshot, self.reading)
        self.pipeline, self._batches = pipeline, batches
        self.stage = pipeline.consumed
        self.reading.forget()
        self.reading = None
        self.saved = replace(snapshot, unspent=None, held=[], links={})

    def begin_empty(self, ended: Any, *, failed: bool) -> None:
        """Begin without items; `ended` is a stage at its end."""
        self.is_failed = failed
        self.is_working = True
        self.stage = ended
        self.reading = None

    @property
    def has_failed(self) -> bool:
        """True if the source has raised an exception instead of a first item."""
        return self.reading is not None and self.reading.error is not None

    @property
    def is_unfinished(self) -> bool:
        """True if an iteration has begun and is not at its end."""
        return self.token is not None

    @property
    def is_between(self) -> bool:
        """True if an iteration is over and the next one has begun by itself."""
        return self.stage is not None and self.token is None

    @property
    def at_end(self) -> bool:
        """True if nothing is left."""
        return self.pipeline is None or bool(self.stage._at_end)

    @property
    def at_last_batch(self) -> bool:
        """True if the consumer has the last batch of its iteration, as far as that is known."""
        return self.stage is not None and self.stage._delivered == self._batches

    @property
    def exceeded(self) -> bool:
        """True if passes had more items than told; asked once."""
        found = bool(self._excess)
        self._excess.clear()
        return found

    @property
    def read_to_end(self) -> int | None:
        """Items of the one pass that was read, from its beginning to its end; None for others."""
        pipeline, saved = self.pipeline, self.saved
        if pipeline is None or not saved.is_fresh or not self.at_end or pipeline.config.flows:
            return None
        stage = pipeline.echo.stage
        return None if stage._failed else pipeline.stats().read - self._read_before

    @property
    def jobs(self) -> list[Job]:
        """Work for the threads."""
        return [] if self.pipeline is None else self.pipeline.jobs(self.context)

    def leave(self) -> None:
        """Have the threads end where they stand, so that another iteration can go on."""
        assert self.pipeline is not None
        self.is_left = True
        self.is_working = False
        self.pipeline.set_paused(True)

    def go_on(self) -> None:
        """Undo that. The threads have left."""
        assert self.pipeline is not None
        self.pipeline.set_paused(False)
        self.context = CallerContext()
        self.is_left = False
