"""Echoing in host memory: the nodes of batch and of example echoing, and their pipeline."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from typing import Any

from pyecho import _core
from pyecho._core import ConfigError, EchoError
from pyecho.buffer import native_arguments
from pyecho.fitted import Fitted
from pyecho.items.nest import leaves_of, map_nest
from pyecho.items.programs import rows_with
from pyecho.items.ragged import ragged_rows, with_fields
from pyecho.items.rows import row_spec, rows_of
from pyecho.items.sharing import transform_for
from pyecho.items.spec import Adapter, Field
from pyecho.run.pipeline import Pipeline
from pyecho.run.reading import Reading
from pyecho.source import Source
from pyecho.state.items import Columns, References, refill
from pyecho.state.position import Snapshot

AHEAD_BYTES, MOST_ITEMS_AHEAD = 4 << 20, 256
"""Cheap items go from the feeder to the consumer in groups, as large as these allow."""


def host_pipeline(source: Source, fitted: Fitted, first: Any, *, adapter: Adapter) -> Pipeline:
    """Return the pipeline for items like the first one; `ConfigError` if they cannot be echoed."""
    by_item = fitted.config.batch_size is None
    make = item_echo if by_item else example_echo
    pipeline = Pipeline(make(source, fitted, first, adapter), fitted, adapter)
    add_augmentation(pipeline)
    return pipeline


def add_augmentation(
    pipeline: Pipeline, then: Callable[[Any], Any] | None = None, **more: Any
) -> None:
    """Have threads collate and augment every batch, if the options ask for it.

    `then`: what is done to each afterwards. `more`: see `Pipeline.add_link`.
    """
    config = pipeline.fitted.config
    if config.linked:
        from pyecho.run.augment import Augmentation

        threads = max(1, config.augment_workers)
        augmentation = Augmentation(config, pipeline.echo.spec, pipeline.adapter)

        def make(emission: Any, epoch: int, number: int) -> Any:
            made = augmentation(emission, epoch, number)
            return made if then is None else then(made)

        pipeline.add_link("augment", make, threads=threads, **more)


class HostEcho:
    """A native stage that reads the source and echoes. See `pyecho.run.pipeline.Echo`."""

    def __init__(
        self,
        stage: Any,
        items: References | Columns,
        source: Source,
        fitted: Fitted,
        *,
        spec: Any = None,  # of an example
        row_spec: Any = None,  # of a row of a batch
        lists: tuple[bool, ...] = (),
        blocks: Any = None,  # from which batches are sent to a device
    ) -> None:
        self.stage = stage
        self.items = items
        self.spec, self.row_spec, self.lists, self.blocks = spec, row_spec, lists, blocks
        self.take, self.log, self.stats = stage._take, stage._log, stage._stats
        self._source = source
        self._fitted = fitted

    @property
    def at_end(self) -> bool:
        """True if everything was taken."""
        return bool(self.stage._at_end)

    def counts(self) -> tuple[int, int]:
        """Return how many uses were taken, and how many fresh items among them."""
        stats = self.stats()
        return stats["emitted"], stats["fresh"]

    def begin(self, saved: Snapshot, reading: Reading) -> None:
        """Begin where a snapshot was taken, or afresh."""
        stage, unspent = self.stage, saved.unspent
        if saved.is_fresh:
            stage._begin(saved.at)
        else:
            stage._make_room(0 if unspent is None else len(unspent.numbers))
            _, slots = stage._resume(reading.at, None if unspent is None else unspent.numbers)
            parts = reading.again if unspent is None else self.items.parts(unspent)
            refill(stage._refill, parts, slots)
        self.read(saved, reading)

    def read(self, saved: Snapshot, reading: Reading) -> None:
        """Have the stage read on, once it has begun."""
        self.stage._read(
            reading,
            by_consumer=self._fitted.wiring.by_consumer,
            # Items read ahead are no part of the iterator again: then they would be neither in
            # the stage nor ahead of the source's own state.
            first=(*map(self.items.whole, saved.held), *reading.first),
            skipped_rows=reading.skipped_rows,
            at_empty=self._at_empty(),
        )

    def _at_empty(self) -> bool | Exception | None:
        """Return the error of a later pass without items; True if passes end there, None if not."""
        config = self._fitted.config
        if config.steps_per_epoch is None or not config.bounded:
            return None if config.steps_per_epoch is None else True
        return EchoError(
            f"a later pass over the source ({type(self._source.object).__name__}) has no item; "
            f"with steps_per_epoch= and {config.bounded_by} every pass needs one"
        )

    def state(
        self, *, payload: bool, with_held: bool, taken: tuple[int, int] | None = None
    ) -> dict[str, Any]:
        """Return where the stage stands."""
        state: dict[str, Any] = self.stage._state(payload=payload, with_held=with_held, taken=taken)
        if with_held:
            state["held"] = self.items.held(state["held"])
        if payload:
            state["unspent"] = self.items.unspent(state)
        return state


def item_echo(
    source: Source,
    fitted: Fitted,
    first: Any,
    adapter: Adapter,
    *,
    prepare: Callable[[Any], Any] | None = None,
    fetch: Callable[[Any], Any] | None = None,
    to_host: Callable[[Any], Any] | None = None,
) -> HostEcho:
    """Return the node of batch echoing: the feeder prepares items, each use is fetched.

    `to_host`: turns a prepared item into one that a state can hold.
    """
    config = fitted.config
    stage = _core.ObjectStage(
        fitted._replace(prefetch=items_ahead(fitted, first)),
        transform=transform_for(fetch=fetch, copied=config.copy, with_info=config.with_info),
        shared=not config.copy,
    )
    if prepare is not None:
        stage._set_prepare(prepare)
    return HostEcho(stage, References(adapter, to_host), source, fitted)


def items_ahead(fitted: Fitted, first: Any) -> int:
    """Return how many items may be read ahead of the pool."""
    item_bytes, config, wiring = size_of(first), fitted.config, fitted.wiring
    items = fitted.capacity + config.prefetch
    needed = items * (item_bytes or 0)
    if config.max_bytes is not None and needed > config.max_bytes and not wiring.resumes:
        raise ConfigError(
            f"{items} items (shuffle_buffer + prefetch) of {item_bytes} bytes need {needed} bytes, "
            f"but max_bytes is {config.max_bytes}; lower shuffle_buffer or prefetch, or raise "
            "max_bytes"
        )
    ahead = max(config.prefetch, fitted.slots_ahead)
    few = wiring.by_consumer or wiring.reads_few or config.max_bytes is not None
    if few or item_bytes is None:
        return ahead
    return max(ahead, min(MOST_ITEMS_AHEAD, AHEAD_BYTES // max(1, item_bytes)))


def example_echo(
    source: Source,
    fitted: Fitted,
    first: Any,
    adapter: Adapter,
    *,
    held: int = 0,
    pinned: bool = False,
    blocks_for: Callable[[Any], Any] | None = None,
) -> HostEcho:
    """Return the node of example echoing.

    `held`: batches that links hold besides the consumer. `pinned`: batches are in pinned memory.
    `blocks_for`, called with the fields of an example, makes the `pyecho.device.blocks.Blocks` from
    which batches are sent to a device.
    """
    config, wiring = fitted.config, fitted.wiring
    spec, lists = spec_of_examples(source, fitted, first, adapter)
    rows, row_spec = rows_with(config.ops, spec, adapter)
    ragged = ragged_rows(row_spec, adapter)
    if blocks_for is not None and ragged is not None:  # a block has rows of one size
        blocks_for, pinned = None, True
    blocks = blocks_for and blocks_for(leaves_of(row_spec))
    held += wiring.held + config.held_by_links
    by_workers = source.fills_slots and _can_be_mapped(fitted, spec)
    together = max(1, min(32, AHEAD_BYTES // 4 // max(1, size_of(first) or 1)))
    ahead = rows_of(first) if config.splits_batches else 2 * config.num_workers * together
    varies = any(field.varies for field in leaves_of(spec))
    if config.max_bytes is not None and (varies or not by_workers):
        ahead = 1  # or the size of the item that happens to be first decided what fits
    fitted = fitted._replace(
        slots_ahead=max(1, ahead),
        shared_slots=by_workers,
        held=1 if blocks else held,  # a batch on the device is no lease
    )
    arguments = native_arguments(
        spec,
        fitted,
        name="EchoLoader",
        batched=source.batched,
        to_array=adapter.as_array,
        from_array=adapter.decoder(leaves_of(row_spec)),
        rows=rows,
        ragged=ragged,
        allocate=adapter.allocate if pinned or config.pin_memory else None,
        blocks=blocks,
    )
    stage = _core.ExampleStage(**arguments)
    if blocks:
        blocks.place(stage._batch_offsets)
    if wiring.grows_quietly:
        stage._expect_growth()
    if by_workers:
        source.fill_slots(spec, adapter.as_array, together)
    items = Columns(adapter, spec)
    return HostEcho(
        stage, items, source, fitted, spec=spec, row_spec=row_spec, lists=lists, blocks=blocks
    )


def _can_be_mapped(fitted: Fitted, spec: Any) -> bool:
    """Return whether a process may have addresses for slots with room for the largest items."""
    slots = 2 * fitted.capacity + 64 * (fitted.config.batch_size or 1)
    size_bytes = slots * sum(field.size_bytes for field in leaves_of(spec) if field.varies)
    try:
        mmap.mmap(-1, max(1, size_bytes), mmap.MAP_PRIVATE, 0).close()
    except (OSError, OverflowError):
        return False
    return True


def spec_of_examples(
    source: Source, fitted: Fitted, first: Any, adapter: Adapter
) -> tuple[Any, tuple[bool, ...]]:
    """Return the spec of an example of an item like this one, and which lists are columns."""
    config = fitted.config
    if config.collate_fn is not None:
        return Field((), object), ()
    if config.splits_batches:
        spec, lists = row_spec(first, adapter, fitted.wiring.lists)
        return with_fields(spec, config.fields), lists
    spec = map_nest(adapter.field_of, first)
    if source.batched:  # chunks of rows of arrays
        spec = map_nest(lambda field: Field(field.shape[1:], field.dtype), spec)
    return with_fields(spec, config.fields), ()


def size_of(item: Any) -> int | None:
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
