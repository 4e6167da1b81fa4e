"""The stages of one epoch: which there are for a loader's options, and how they feed each other.

    source -> echo (items by reference, or examples in a buffer) -> augment -> upload -> consumer

Every arrow but the last is a thread that takes from its left and puts into the stage on its right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pyecho import _core
from pyecho._core import ConfigError
from pyecho.adapter import Adapter
from pyecho.augment import Augment, augmented
from pyecho.buffer import EchoBuffer
from pyecho.device.echo import DeviceEcho, EchoArrays
from pyecho.device.memory import Memory
from pyecho.device.upload import DEPTH, Uploader, uploads
from pyecho.nest import leaves_of, map_nest
from pyecho.progress import Filling
from pyecho.rows import row_spec, rows_of
from pyecho.run import Run
from pyecho.sharing import transform_for

__all__ = ["Options", "Pipeline"]


@dataclass(frozen=True)
class Options:
    """The arguments of a loader, checked; `EchoLoader` says what they mean."""

    factor: float
    batch_size: int | None
    unbatch: bool
    capacity: int
    unique_in_batch: bool
    drop_last: bool
    seed: int
    prefetch: int
    threads: int
    augment: Augment | None
    memory: Memory
    max_bytes: int | None
    with_info: bool
    copy: bool


class Pipeline:
    """Adds the stages of one epoch to a run.

    Parameters
    ----------
    options
        The loader's.
    adapter
        Speaks the library of the loader's arrays.
    run
        What the stages are added to.
    epoch
        Number of the epoch.
    filling
        The bar to show while the pool fills, if any.
    arrays
        The device arrays that batches become, or None if they stay on the host.
    echo_on
        Where examples are echoed.
    """

    def __init__(
        self,
        options: Options,
        adapter: Adapter,
        run: Run,
        epoch: int,
        filling: Filling | None,
        arrays: EchoArrays | None,
        echo_on: Literal["host", "device"],
    ) -> None:
        self._options = options
        self._adapter = adapter
        self._run = run
        self._epoch = epoch
        self._filling = filling
        self._arrays = arrays
        self._echo_on = echo_on
        self._uploader = None if arrays is None else Uploader(arrays, options.prefetch + 1)
        run.uploader = self._uploader

    def echo_batches(self, items: Iterator[Any], first: Any) -> None:
        """Echo items by reference; on a device they are uploaded before, once each."""
        options = self._options
        self._check_queue_bytes(first)
        # What augment makes of a use is another batch: then uses are uploaded, not items.
        uploader = self._uploader if options.augment is None else None
        queue = _core.EchoQueue(
            capacity=options.capacity,
            factor=options.factor,
            seed=options.seed,
            epoch=self._epoch,
            prefetch=options.prefetch,
            transform=transform_for(
                fetch=None if uploader is None else uploader.deliver,
                copied=options.copy,
                with_info=options.with_info,
            ),
        )

        # The feeder's thread keeps what these functions refer to, and must not keep the options:
        # through augment they can lead to the consumer's iterator, which then would never die.
        share_item = _unshared if options.copy else _core.share_item

        def put(item: Any) -> None:
            queue.put(*share_item(item))

        def put_uploaded(item: Any) -> None:
            assert uploader is not None
            uploaded = uploader.upload(item)
            shared, guards = share_item(uploaded.item)
            queue.put(uploaded._replace(item=shared), guards)

        self._feed(queue, items, put if uploader is None else put_uploaded, lambda _: 1)
        if uploader is None:
            self._upload(self._augment(queue))

    def echo_examples(self, items: Iterator[Any], first: Any, *, batched: bool) -> None:
        """Echo examples, or the rows of items that are `batched`."""
        options = self._options
        field_of = self._adapter.field_of
        spec = row_spec(first, field_of) if batched else map_nest(field_of, first)
        burst = max(1, rows_of(first)) if options.unbatch else 1
        if self._echo_on == "device":
            self._echo_on_device(items, spec, burst, batched=batched)
            return
        buffer = self._buffer(
            spec,
            burst,
            batch_size=options.batch_size,
            factor=options.factor,
            capacity=options.capacity,
            unique_in_batch=options.unique_in_batch,
            drop_last=options.drop_last,
            with_info=options.with_info,
        )
        self._feed_buffer(buffer, items, batched=batched)
        self._upload(self._augment(buffer))

    # ------------------------------------------------------------ stages

    def _echo_on_device(
        self, items: Iterator[Any], spec: Any, burst: int, *, batched: bool
    ) -> None:
        """Examples cross the link once, in chunks; batches of their uses are made on the device."""
        options = self._options
        assert options.batch_size is not None
        assert self._arrays is not None
        assert self._uploader is not None
        chunk_rows = max(1, options.batch_size // int(options.factor))
        staging = self._buffer(spec, burst, batch_size=chunk_rows, factor=1)
        plan = _core.BatchPlan(
            batch_size=options.batch_size,
            factor=options.factor,
            capacity=options.capacity,
            seed=options.seed,
            epoch=self._epoch,
            unique_in_batch=options.unique_in_batch,
            drop_last=options.drop_last,
        )
        slots = plan.slots_for(options.capacity, options.batch_size)
        echo = DeviceEcho(spec, plan, slots, self._arrays, self._uploader)
        self._feed_buffer(staging, items, batched=batched)
        self._run.echo = echo
        batches = echo.batches(staging._iterate(None), with_info=options.with_info)
        self._link("echo", batches, echo.deliver)

    def _buffer(self, spec: Any, burst: int, **echo: Any) -> EchoBuffer:
        options = self._options
        held = 2
        if self._uploader is not None:
            held += DEPTH
        if options.augment is not None:
            held += options.prefetch + 2  # what waits in its queue, and what its thread is at
        return EchoBuffer(
            spec,
            **echo,
            seed=options.seed,
            epoch=self._epoch,
            prefetch=options.prefetch,
            threads=options.threads,
            burst=burst,
            memory=options.memory,
            device=None if self._arrays is None else self._arrays.ordinal,
            max_bytes=options.max_bytes,
            held=held,
            _uploaded=self._uploader is not None,
            to_array=self._adapter.as_array,
            from_array=self._adapter.decoder(leaves_of(spec)),
        )

    def _augment(self, stage: Any) -> Any:
        options = self._options
        if options.augment is None:
            return stage
        batches = augmented(
            stage._iterate(None),
            options.augment,
            options.seed,
            self._epoch,
            with_info=options.with_info,
        )
        return self._link("augment", batches)

    def _upload(self, stage: Any) -> None:
        if self._uploader is None:
            return
        batches = uploads(stage._iterate(None), self._uploader, with_info=self._options.with_info)
        self._link("upload", batches, self._uploader.deliver)

    def _link(
        self, name: str, items: Iterator[Any], fetch: Callable[[Any], Any] | None = None
    ) -> Any:
        """Add a thread that works through `items`, and a queue for what they are."""
        queue = _core.EchoQueue(
            capacity=1,
            factor=1.0,
            seed=0,
            epoch=0,
            prefetch=self._options.prefetch,
            transform=transform_for(fetch=fetch, copied=False, with_info=False),
        )
        self._run.add(queue, name, items, lambda item: queue.put(item, None))
        return queue

    # ------------------------------------------------------------ the feeder

    def _feed_buffer(self, buffer: EchoBuffer, items: Iterator[Any], *, batched: bool) -> None:
        put = buffer.put_batch if batched else buffer.put
        self._feed(buffer, items, put, rows_of if batched else lambda _: 1)

    def _feed(
        self,
        stage: Any,
        items: Iterator[Any],
        put: Callable[[Any], None],
        rows: Callable[[Any], int],
    ) -> None:
        if self._filling is not None:
            put = self._filling.around(put, rows)
        self._run.add(stage, "feeder", items, put)

    def _check_queue_bytes(self, first: Any) -> None:
        options = self._options
        if options.max_bytes is None:
            return
        items = options.capacity + options.prefetch
        item_bytes = sum(int(getattr(leaf, "nbytes", 0)) for leaf in leaves_of(first))
        if items * item_bytes > options.max_bytes:
            raise ConfigError(
                f"{items} items (shuffle_buffer + prefetch) of {item_bytes} bytes need "
                f"{items * item_bytes} bytes, but max_bytes is {options.max_bytes}; "
                "lower shuffle_buffer or prefetch, or raise max_bytes"
            )


def _unshared(item: Any) -> tuple[Any, None]:
    """Prepare an item of which every use gets a copy: nothing to protect."""
    return item, None
