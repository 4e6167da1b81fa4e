"""The stages of a run: the echo stage, which reads the source, and the links behind it.

    source ──▶ echo ──▶ links (collate and augment, upload) ──▶ consumer

They are made when the first item is known, and serve all epochs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pyecho import _core
from pyecho._core import CheckpointError, ConfigError, EchoError
from pyecho.buffer import native_arguments, stats_of
from pyecho.config import Config
from pyecho.items.nest import leaves_like, leaves_of, map_nest
from pyecho.items.rows import row_spec, rows_of
from pyecho.items.sharing import transform_for
from pyecho.items.spec import Adapter, Field
from pyecho.run.augment import Augmentation
from pyecho.run.context import CallerContext
from pyecho.run.link import Link
from pyecho.run.ranks import ENDLESS, FIRST_KNOTS, Extent, Group, decide
from pyecho.source.passes import Opening
from pyecho.source.source import Source
from pyecho.state.resume import NOTHING
from pyecho.state.state import leaves_of_spec, taken_only
from pyecho.stats import EchoStats

AHEAD_BYTES = 4 << 20
MOST_ITEMS_AHEAD = 256
"""Cheap items go from the feeder to the consumer in groups: the queue between them holds as many
items as these allow."""


class Stages:
    """The stages for items like the first one; `ConfigError` if they cannot be echoed so.

    Refers to nothing of the run, so that threads at work do not keep a run alive. Any thread may
    call `stats`; the run calls all else in its turn.
    """

    def __init__(
        self,
        source: Source,
        config: Config,  # with the capacity for this source; `held`: batches at the consumer
        first: Any,
        *,
        adapter: Adapter,
        by_consumer: bool,  # the consumer's thread reads the source; else there is a feeder
    ) -> None:
        self.config = config
        self._source = source
        self._adapter = adapter
        self._by_consumer = by_consumer
        self._stages: list[Any] = []  # the first reads the source, the last is the consumer's
        self._links: list[Link] = []
        self._build(first)

    # ------------------------------------------------------------ epochs

    @property
    def consumed(self) -> Any:
        """The stage that the consumer takes from. It is at its end if that has got everything."""
        return self._stages[-1]

    def begin(self, epoch: int, extent: Extent, opening: Opening) -> None:
        """Begin with the first pass. `jobs` of earlier ones are done."""
        self._stages[0]._begin(epoch, extent)
        if self.config.joint:
            self._echoing._extend(FIRST_KNOTS)
        for link in self._links:
            link.begin(epoch)
        self._read(opening, extent.total_uses)

    def _read(self, opening: Opening, total_uses: int) -> None:
        # Items read ahead are no part of the iterator again: then they would be neither in the
        # stage nor ahead of the source's own state.
        resumed = opening.resumed
        first = [] if resumed is None else list(map(self._whole, resumed.flow.held))
        if opening.first is not NOTHING:
            first += [opening.first, *opening.more]
        self._stages[0]._read(
            opening.passes,
            by_consumer=self._by_consumer,
            first=tuple(first),
            skipped_rows=0 if resumed is None else resumed.offset,
            at_empty=self._at_empty(total_uses),
        )

    def _at_empty(self, total_uses: int) -> bool | Exception | None:
        """Return the error of a later pass without items; True if passes end there, None if not."""
        if self.config.steps_per_epoch is None:
            return None
        if self.config.ranks == 1 or total_uses == ENDLESS:
            return True
        return EchoError(
            f"a later pass over the source ({type(self._source.object).__name__}) has no item; "
            "with steps_per_epoch= and several ranks every pass of every rank needs one, or the "
            "others would wait for this rank for ever"
        )

    def jobs(self, context: CallerContext) -> list[tuple[str, Callable[[], None]]]:
        """Return what threads have to do until the passes end, each with a name for its thread."""
        if self._by_consumer:
            return []
        feeder = self._stages[0]
        jobs: list[tuple[str, Callable[[], None]]] = [
            ("feeder", partial(_work, feeder, context, feeder._feed))
        ]
        for link in self._links:
            for _ in range(link.threads):  # each in a context of its own, which serves one thread
                jobs.append((link.name, partial(_work, link.queue, CallerContext(), link.work)))
        return jobs

    def set_paused(self, paused: bool) -> None:
        """Have the jobs end where they stand, so that nothing is lost, until this is undone."""
        for stage in self._stages:
            stage._set_paused(paused)

    # ------------------------------------------------------------ states

    def state(self, *, payload: bool, with_held: bool) -> dict[str, Any]:
        """Return where the consumer is, as `pyecho.state.state` says. The jobs of links are paused.

        `with_held`: the source has a state of its own, and the feeder is paused as well.
        """
        saved, by_item = self._adapter.saved, self.config.batch_size is None
        state: dict[str, Any] = self._echoing._state(payload=payload, with_held=with_held)
        state["decisions"] = saved(state["decisions"])
        state["knots"] = list(map(list, state["knots"]))
        if not payload:  # what is ahead of the consumer is made again
            place = self.consumed._state(payload=False, with_held=False)
            return state | taken_only(place["iterations"], place["delivered"])
        state["links"] = {link.name: link.state(saved) for link in self._links}
        state["numbers"] = saved(state["numbers"])
        if by_item:
            state["columns"] = [list(map(self._to_host, state["columns"][0]))]
        else:
            state["leaves"] = leaves_of_spec(leaves_of(self._saved_spec()))
            state["columns"] = [
                column if isinstance(column, list) else saved(column) for column in state["columns"]
            ]
        if with_held and not by_item:
            state["held"] = [leaves_like(self._spec, item) for item in state["held"]]
        return state

    def resume(self, opening: Opening) -> None:
        """Go on where a state was taken, as `begin`."""
        assert opening.resumed is not None
        flow, again, batched = opening.resumed.flow, opening.resumed.again, self._source.batched
        numbers, slots = self._echoing._resume(flow)
        slots = flow.slots_of(numbers, slots, adaptive=self.config.adaptive is not None)
        if flow.payload and self.config.batch_size is None:
            again = [
                (flow.columns[0][place], [0], [which]) for which, place in enumerate(flow.order)
            ]
        elif flow.payload:
            spec, batched = self._saved_spec(), True
            arrays = iter(flow.arrays(leaves_of(spec)))
            columns = map_nest(lambda _: next(arrays), spec)
            again = [(columns, flow.order, np.arange(flow.count))] if flow.count else []
        if sum(len(which) for *_, which in again) != len(slots):
            raise CheckpointError("the source does not yield what was read for the state")
        for item, rows, which in again:
            self._echoing._refill(item, batched, rows, slots[which])
        taken = (flow.iterations, flow.delivered)
        for link in self._links:
            taken = link.resume(flow, taken)
        for name, (*_, made) in flow.links.items():
            if made and all(link.name != name for link in self._links):
                raise CheckpointError(
                    f"the state holds batches that were made ahead ({name}), which this loader "
                    "does not make; load it into one with augment or a device as well, or take it "
                    "with state_dict(payload=False)"
                )
        self._read(opening, flow.total_uses)
        self.set_paused(False)

    @property
    def _echoing(self) -> Any:
        """The stage that echoes."""
        return self._stages[0]

    def _saved_spec(self) -> Any:
        """Return the spec of the examples in a state."""
        return self._spec

    def _to_host(self, item: Any) -> Any:
        """Return what a state holds for an item of batch echoing."""
        return item

    def _whole(self, held: Any) -> Any:
        """Return an item that was held when a state was taken."""
        if self.config.batch_size is None:
            return held
        if not isinstance(held, list) or len(held) != len(leaves_of(self._spec)):
            raise CheckpointError("the state tells of items read ahead that cannot be")
        leaves = iter(held)
        return map_nest(lambda _: next(leaves), self._spec)

    def decide(self, group: Group, taken: int, items: int | None) -> int:
        """See `pyecho.run.ranks.decide`."""
        return decide(group, self._echoing, taken, items)

    def own_batches(self, taken: int) -> int | None:
        """Return the batches of all iterations before there are only additional uses.

        None if that was not known before this many batches were taken; does not depend on time.
        """
        own, rows = self._echoing._own_uses, self.config.batch_size or 1
        return -(-own[0] // rows) if own is not None and own[1] <= taken * rows else None

    def take_failure(self) -> BaseException | None:
        """Return the error of the source, once; the consumer ends before it would receive it."""
        failure: BaseException | None = self._echoing._take_failure()
        return failure

    def stop(self) -> None:
        """Have the jobs end, and drop what the stages hold."""
        for stage in self._stages:
            stage.stop()

    def stop_if_failed(self) -> None:
        """Stop the other stages if a link has failed, which ends the consumer's stage alone."""
        if not all(stage._at_end for stage in self._stages):
            self.stop()

    def stats(self) -> EchoStats:
        """Return counts and times so far."""
        # The first stage knows items and uses, the last one knows the consumer.
        counters = self._stages[0]._stats()
        consumer = self._stages[-1]._stats()
        ahead = counters["batches"] - consumer["batches"]  # in the hands of the links
        counters["emitted"] = max(0, counters["emitted"] - ahead * (self.config.batch_size or 1))
        if self._echoing._own_uses is not None:  # so are these
            rows = ahead * (self.config.batch_size or 1)
            counters["additional"] = max(0, counters["additional"] - rows)
        for name in ("batches", "consumer_wait_ns", "downstream_ns"):
            counters[name] = consumer[name]
        return stats_of(counters, self.config.capacity, self._stages[0]._log())

    # ------------------------------------------------------------ making them

    def _build(self, first: Any) -> None:
        config = self.config
        make = self._echo_queue if config.batch_size is None else self._echo_buffer
        self._stages = [make(first)]
        if config.linked:
            self._add_link("augment", Augmentation(config), threads=max(1, config.augment_workers))

    def _add_link(
        self, name: str, make: Callable[[Any, int, int], Any], *, upstream: Any = None, **more: Any
    ) -> None:
        upstream = self._stages[-1] if upstream is None else upstream
        link = Link(upstream, make, name=name, prefetch=self.config.prefetch, **more)
        self._links.append(link)
        self._stages.append(link.queue)

    def _echo_queue(
        self,
        first: Any,
        prepare: Callable[[Any], Any] | None = None,
        fetch: Callable[[Any], Any] | None = None,
        *,
        copied: bool | None = None,  # as the loader's option `copy`, if None
    ) -> Any:
        """Make the stage of batch echoing: the feeder prepares items, each use is fetched."""
        config = self.config
        copied = config.copy if copied is None else copied
        stage = _core.EchoQueue(
            replace(config, prefetch=self._items_ahead(first)),
            transform=transform_for(fetch=fetch, copied=copied, with_info=config.with_info),
            shared=not config.copy,
        )
        if prepare is not None:
            stage._set_prepare(prepare)
        return stage

    def _items_ahead(self, first: Any) -> int:
        config = self.config
        item_bytes = _size_of(first)
        if config.max_bytes is not None:
            items = config.capacity + config.prefetch
            if items * (item_bytes or 0) > config.max_bytes:
                raise ConfigError(
                    f"{items} items (shuffle_buffer + prefetch) of {item_bytes} bytes need "
                    f"{items * (item_bytes or 0)} bytes, but max_bytes is {config.max_bytes}; "
                    "lower shuffle_buffer or prefetch, or raise max_bytes"
                )
        ahead = max(config.prefetch, config.burst)
        few = self._by_consumer or self._source.scarce or config.max_bytes is not None
        if few or item_bytes is None:
            return ahead
        return max(ahead, min(MOST_ITEMS_AHEAD, AHEAD_BYTES // max(1, item_bytes)))

    def _echo_buffer(self, first: Any, **changes: Any) -> Any:
        """Make the stage of example echoing; `changes` are options unlike the loader's."""
        config = self.config
        self._spec = spec = self._spec_of_examples(first)
        options: dict[str, Any] = {
            "threads": 0 if self._by_consumer else config.threads,
            "burst": max(config.burst, rows_of(first) if config.unbatch else 1),
            "held": config.held + config.held_by_link,
            "memory": config.memory,
        } | changes
        stage = _core.EchoBuffer(
            **native_arguments(
                spec,
                replace(config, **options),
                name="EchoLoader",
                batched=self._source.batched,
                to_array=self._adapter.as_array,
                from_array=self._adapter.decoder(leaves_of(spec)),
                allocate=self._adapter.allocate if options["memory"] == "pinned" else None,
            )
        )
        if config.keeps:
            stage._expect_growth()
        return stage

    def _spec_of_examples(self, first: Any) -> Any:
        if self.config.collate_fn is not None:
            return Field((), object)
        if self.config.unbatch:
            return row_spec(first, self._adapter)
        spec = map_nest(self._adapter.field_of, first)
        if self._source.batched:  # chunks of rows of arrays
            spec = map_nest(lambda field: Field(field.shape[1:], field.dtype), spec)
        return spec


def _work(stage: Any, context: CallerContext, work: Callable[[], None]) -> None:
    """Do the work of a thread, with which `stage` fails."""
    try:
        context.run(work)
    except BaseException as error:
        stage.fail(error)


def _size_of(item: Any) -> int | None:
    """Return the bytes of an item, None if it cannot be told."""
    total = 0
    for leaf in leaves_of(item):
        try:
            size = leaf.nbytes if getattr(leaf, "is_cpu", True) else None
        except (AttributeError, RuntimeError, NotImplementedError):  # the last ones: sparse tensors
            size = None
        if size is not None:
            total += int(size)
        elif isinstance(leaf, str | bytes | int | float | complex | None):
            total += sys.getsizeof(leaf)
        else:
            return None
    return total
