"""The pipeline of a run: nodes in a row, made for items like the first one.

    source ──▶ echo ──▶ links (collate and augment, upload) ──▶ consumer

A node takes from the one before it, in threads or in the consumer's, and ends in a native stage.
The nodes serve all epochs. They refer to nothing of the run, so that threads at work do not keep a
run alive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pyecho._core import CheckpointError
from pyecho.buffer import stats_of
from pyecho.fitted import Fitted
from pyecho.items.spec import Adapter
from pyecho.run.context import CallerContext
from pyecho.run.reading import Reading
from pyecho.run.threads import ThreadPool
from pyecho.source import Source
from pyecho.state.position import Snapshot
from pyecho.stats import EchoStats

if TYPE_CHECKING:
    from pyecho.run.link import Link

Job = tuple[str, Callable[[], None]]
"""The work of a thread until the passes end, with a name for the thread."""

MakePipeline = Callable[[Source, Fitted, Any], "Pipeline"]
"""Makes a pipeline of a source, the options fitted to it, and the first item."""


class Echo(Protocol):
    """The first node: reads the source, and echoes."""

    stage: Any  # the native stage that reads the source, and fails if its thread does
    spec: Any  # of an example; None in batch echoing
    lists: tuple[bool, ...]  # which lists in a batch of the source are columns

    @property
    def at_end(self) -> bool:
        """True if everything was taken, and nothing follows."""

    def begin(self, saved: Snapshot, reading: Reading) -> None:
        """Begin where a snapshot was taken, or afresh. `reading` is open; its jobs are done."""

    def take(self) -> Any:
        """Return the next batch or item; raise `StopIteration` at the end of an iteration."""

    def state(
        self, *, payload: bool, with_held: bool, taken: tuple[int, int] | None = None
    ) -> dict[str, Any]:
        """Return where the node stands, as `_core.ExampleStage._state`, and its items."""

    def stats(self) -> dict[str, int]:
        """Return the counters of `_core.ExampleStage._stats`."""

    def counts(self) -> tuple[int, int]:
        """Return how many uses were taken, and how many fresh items among them."""

    def log(self) -> dict[Any, Any]:
        """Return the decisions of an adaptive factor."""


class Pipeline:
    """An echo and the links after it.

    `sent_bytes` returns how many bytes were sent to a device. Any thread may call `stats`; only the
    run calls the rest, in its turn.
    """

    def __init__(
        self, echo: Echo, fitted: Fitted, adapter: Adapter, sent_bytes: Callable[[], int] = int
    ) -> None:
        self.fitted = fitted
        self.echo = echo
        self.links: list[Link] = []
        self.adapter = adapter
        self._sent_bytes = sent_bytes

    def add_link(self, name: str, make: Callable[[Any, int, int], Any], **more: Any) -> None:
        """Have threads make something of every batch, after all nodes so far."""
        from pyecho.run.link import Link

        upstream, prefetch = (
            self.links[-1] if self.links else self.echo,
            self.fitted.config.prefetch,
        )
        self.links.append(Link(upstream, make, name=name, prefetch=prefetch, **more))

    @property
    def consumed(self) -> Any:
        """The native stage that the consumer takes from."""
        return self.links[-1].queue if self.links else self.echo.stage

    @property
    def _stages(self) -> list[Any]:
        return [self.echo.stage, *(link.queue for link in self.links)]

    # ------------------------------------------------------------ epochs

    def begin(self, saved: Snapshot, reading: Reading) -> None:
        """Begin where a snapshot was taken, or afresh. The jobs of earlier passes are done."""
        for name, (*_, made) in saved.links.items():
            if made and all(link.name != name for link in self.links):
                raise CheckpointError(
                    f"the state holds batches that were made ahead ({name}), which this loader "
                    "does not make; load it into one with augment or a device as well, or take it "
                    "with state_dict(payload=False)"
                )
        self.echo.begin(saved, reading)
        taken = (saved.at.iterations, saved.at.delivered)
        for link in self.links:
            taken = link.begin(saved, taken)
        self.set_paused(False)

    def jobs(self, context: CallerContext) -> list[Job]:
        """Return what threads have to do until the passes end, each with a name for its thread."""
        if self.fitted.wiring.by_consumer:
            return []
        feeder = self.echo.stage
        jobs: list[Job] = [("feeder", partial(context.run, feeder._feed, feeder.fail))]
        for link in self.links:
            for _ in range(link.threads):  # each in a context of its own, which serves one thread
                work = partial(CallerContext().run, link.work, link.queue.fail)
                jobs.append((link.name, work))
        return jobs

    def set_paused(self, paused: bool) -> None:
        """Have the jobs end where they stand, so that nothing is lost, until this is undone."""
        for stage in self._stages:
            stage._set_paused(paused)

    def stop(self, thread_pool: ThreadPool) -> None:
        """Have the jobs end, drop what the nodes hold, and leave the source."""
        for stage in self._stages:
            stage.stop()
        thread_pool.leave_source(self.echo.stage._leave_source)

    @property
    def at_end(self) -> bool:
        """True if all nodes are."""
        return all(stage._at_end for stage in self._stages)

    # ------------------------------------------------------------ states and statistics

    def state(self, *, payload: bool, with_held: bool) -> dict[str, Any]:
        """Return the parts of a state that the nodes know. The jobs of links are paused.

        `with_held`: the source has a state of its own, and the feeder is paused as well.
        """
        saved = self.adapter.saved
        last = self.links[-1].queue._state(payload=False, with_held=False) if self.links else None
        taken = None if last is None else (last["iterations"], last["delivered"])
        state = self.echo.state(payload=payload, with_held=with_held, taken=taken)
        state["decisions"] = saved(state["decisions"])
        if payload:
            state["links"] = {link.name: link.state(saved) for link in self.links}
            return state
        # Batches ahead of the consumer are made again.
        last = last or state
        taken_there = {"iterations": last["iterations"], "delivered": last["delivered"]}
        return state | taken_there | {"batches": last["delivered"]}

    def stats(self) -> EchoStats:
        """Return counts and times so far."""
        counters = self.echo.stats()
        if self.links:  # of which the last one knows the consumer
            consumer = self.links[-1].queue._stats()
            counters["emitted"], counters["fresh"] = self.links[-1].counts()
            for name in ("batches", "consumer_wait_ns", "downstream_ns"):
                counters[name] = consumer[name]
        stats = stats_of(counters, self.fitted.capacity, self.echo.log())
        return replace(stats, h2d_bytes=self._sent_bytes())
