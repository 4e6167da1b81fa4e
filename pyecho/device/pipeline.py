"""The pipeline of a loader whose batches go to a device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from pyecho import cuda
from pyecho._core import ConfigError, CudaError
from pyecho.config import Config
from pyecho.device.blocks import Blocks
from pyecho.device.crossing import Crossing
from pyecho.device.handover import HandOver
from pyecho.device.leaves import functions
from pyecho.device.place import Device, present_device
from pyecho.device.pool import DeviceEcho
from pyecho.device.runtime import runtime
from pyecho.device.tables import WORD_BYTES
from pyecho.fitted import Fitted
from pyecho.items.nest import flatten, leaves_of
from pyecho.items.spec import Adapter, EchoInfo, Field
from pyecho.run.augment import random_bits
from pyecho.run.host import HostEcho, add_augmentation, example_echo, item_echo, items_ahead
from pyecho.run.pipeline import Pipeline
from pyecho.source import Source

AHEAD = 3
"""Batches beyond `prefetch` that a consumer takes before it waits for its stream."""


def device_pipeline(
    source: Source,
    fitted: Fitted,
    first: Any,
    *,
    adapter: Adapter,
    there: Device,
) -> Pipeline:
    """Return a pipeline that brings batches to a device, or makes them there.

    Raises also what is missing for that: `CudaError`, or `ConfigError`. The driver is loaded here.
    """
    device, config = present_device(there.device), fitted.config
    by_item = config.batch_size is None
    if there.max_bytes is not None:  # what is read or made ahead is there, too
        few = by_item and not config.linked
        fitted = fitted._replace(most_ahead=1, wiring=replace(fitted.wiring, reads_few=few))
    augment = None
    if there.augment is not None:
        augment = device_augmentation(there.augment, config, device)
    keeps = by_item and not config.linked
    handover = HandOver(
        device,
        ahead=config.prefetch + AHEAD,
        dtype=there.dtype,
        limit=there.max_bytes,
        pin=config.pin_memory,
        sends=augment is None,
        keeps=keeps,
        shared=keeps and not config.copy,
    )
    made = (source, fitted, first, adapter)
    crossings = _Crossings(handover, with_info=config.with_info)
    deliver = {} if augment else {"fetch": crossings.deliver}
    echo: Any
    if there.echo:
        echo = _device_echo(source, fitted, first, adapter, handover)
    elif not by_item:
        echo = _sent(partial(example_echo, *made), config, handover)
    elif config.linked:
        echo = item_echo(*made, prepare=handover.expect)
    else:
        # Every item is sent once. What augment makes of a use there is another batch.
        echo = item_echo(
            *made,
            prepare=handover.pack,
            fetch=handover.take if augment else handover.deliver,
            to_host=handover.to_host,
        )
    pipeline = Pipeline(echo, fitted, adapter, sent_bytes=partial(_sent_bytes, handover, echo))
    add_augmentation(pipeline, crossings.pack, **crossings.states(), **deliver)
    brings = there.echo or not (config.linked or by_item or echo.blocks)
    if augment is not None or brings:
        make = crossings.made_by(augment, brings=brings) if augment else crossings.pack
        pipeline.add_link(
            "upload",
            make,
            fetch=crossings.deliver,
            within=handover.computing if augment or there.echo else nullcontext,
            **crossings.states(),
        )
    _check_memory(pipeline, first, adapter, handover)
    return pipeline


# ---------------------------------------------------------------- nodes


class _Crossings:
    """Sends batches that links have made, with their info, to the consumer."""

    def __init__(self, handover: HandOver, *, with_info: bool) -> None:
        self._handover = handover
        self._with_info = with_info

    def states(self) -> dict[str, Any]:
        """Return how a link's state has them."""
        return {"to_state": self._to_state, "of_state": self._of_state}

    def pack(self, emission: Any, *_: int) -> Crossing:
        """Return a batch that is ready to cross."""
        if isinstance(emission, Crossing):
            return emission
        batch, info = emission if self._with_info else (emission, None)
        if info is not None:  # often a view of the batch's host memory, which goes back now
            info = EchoInfo(*(column.copy() for column in info))
        return self._handover.pack(batch, info)

    def made_by(
        self, augment: Callable[[Any, int, int], Any], *, brings: bool
    ) -> Callable[..., Crossing]:
        """Return what brings a batch to the device, if need be, and augments it, for a link."""

        def made(emission: Any, epoch: int, number: int) -> Crossing:
            emission = self.pack(emission) if brings else emission
            batch, info = (
                emission if type(emission) is tuple and self._with_info else (emission, None)
            )
            if isinstance(batch, Crossing):
                batch, info = self._handover.take(batch), batch.info
            with self._handover.computing():
                batch = augment(batch, epoch, number)
            return self._handover.finished(batch, info)

        return made

    def deliver(self, crossing: Crossing, number: int, use: int) -> Any:
        """Return what the consumer gets."""
        batch = self._handover.deliver(crossing)
        return (batch, crossing.info) if self._with_info else batch

    def _to_state(self, crossing: Crossing) -> list[Any]:
        return [self._handover.to_host(crossing), *(crossing.info or ())]

    def _of_state(self, batch: Any, *info: Any) -> Crossing:
        return self._handover.pack(batch, EchoInfo(*info) if info else None)


def _sent(make: Callable[..., HostEcho], config: Config, handover: HandOver) -> HostEcho:
    """Return example echoing whose native threads send batches to the device, if they can.

    They need the functions of CUDA's runtime and of PyTorch's, and pinned memory.
    """
    found = None if functions() is None else runtime()
    if found is not None and config.pin_memory is not False and not config.linked:
        dtype = handover.dtype
        try:
            return make(blocks_for=partial(Blocks, handover, found, dtype))
        except CudaError:
            if config.pin_memory or cuda.why_not():
                raise
    return make()


def _sent_bytes(handover: HandOver, echo: Any) -> int:
    return handover.sent_bytes + (echo.blocks.uploads.sent_bytes if echo.blocks else 0)


def _device_echo(
    source: Source, fitted: Fitted, first: Any, adapter: Adapter, handover: HandOver
) -> DeviceEcho:
    """Return the pool on the device: examples cross the link once, in chunks."""
    config = fitted.config
    assert config.batch_size is not None
    leaves, structure = flatten(first)
    for path, leaf in zip(structure.paths(), leaves, strict=True):
        _check_leaf(adapter, path, leaf)
    chunk = max(1, config.batch_size // int(config.most_uses))
    staged = replace(
        config,
        rank=0,
        ranks=1,
        batch_size=chunk,
        factor=1,
        shuffle_buffer=1,
        unique_in_batch=False,
        drop_last=False,
        pad_last=False,
        pin_memory=False,
        with_info=False,
        steps_per_epoch=None,
        shards=None,
    )
    staging_fitted = fitted._replace(config=staged, capacity=1)
    held = -(-config.batch_size // chunk)  # chunks, until a batch crosses with them
    staging = example_echo(source, staging_fitted, first, adapter, held=held)
    return DeviceEcho(staging, fitted._replace(slots_ahead=1), adapter, handover, chunk=chunk)


def _check_leaf(adapter: Adapter, path: str, leaf: Any) -> None:
    """Raise `ConfigError`, with the name of the leaf, for a tensor that is not in host memory."""
    try:
        adapter.as_array(leaf)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def device_augmentation(
    function: Callable[[Any, torch.Generator], Any], config: Config, device: torch.device
) -> Callable[[Any, int, int], Any]:
    """Return what augments a batch with a device's ``augment(batch, generator)``.

    The generator draws on the device, and is seeded anew for each batch by (seed, epoch, number of
    the batch), so the result depends neither on the batches before it nor on threads. For one
    thread.
    """
    generator = torch.Generator(device)

    def augment(batch: Any, epoch: int, number: int) -> Any:
        generator.manual_seed(int(random_bits(config, 2, epoch, number).random_raw()))
        batch = function(batch, generator)
        if batch is None:
            raise ConfigError(
                "Device(augment=) returned None; it must return the batch, also when it changes it "
                "in place"
            )
        return batch

    return augment


# ---------------------------------------------------------------- memory


def _check_memory(pipeline: Pipeline, first: Any, adapter: Adapter, handover: HandOver) -> None:
    """Raise `ConfigError` if more would be kept on the device than `Device.max_bytes`."""
    limit, dtype = handover.limit, handover.dtype
    config = pipeline.fitted.config
    echo: Any = pipeline.echo
    if limit is None:
        return
    if config.batch_size is None:
        kept = config.prefetch
        if not config.linked:
            kept = pipeline.fitted.capacity + items_ahead(pipeline.fitted, first)
        fields = [_field_of(leaf, adapter, handover) for leaf in leaves_of(first)]
        needed = kept * _bytes_of(fields, dtype)
        what = f"{kept} items"
    else:
        is_pool = isinstance(echo, DeviceEcho)
        fields = leaves_of(echo.spec if is_pool else echo.row_spec)
        batches = config.prefetch if pipeline.links else 0
        needed = batches * config.batch_size * _bytes_of(fields, dtype)
        if echo.blocks is not None:
            needed += echo.blocks.size_bytes
            batches += echo.blocks.count
        what = f"{batches} batches"
        if is_pool:
            slots, row_bytes = echo.plan.slots, _bytes_of(fields, None)
            needed += slots * (row_bytes + -row_bytes % WORD_BYTES)
            needed += 2 * config.batch_size * row_bytes  # examples on their way, and a batch's
            what = f"a pool of {slots} examples, its chunks, and {what},"
    if needed > limit:
        raise ConfigError(
            f"{what} need {needed} bytes on {handover.device}, but Device(max_bytes=) is {limit}; "
            "lower shuffle_buffer, batch_size or prefetch, or raise it"
        )


def _field_of(leaf: Any, adapter: Adapter, handover: HandOver) -> Field:
    if handover.is_there(leaf):
        leaf = torch.empty(leaf.shape, dtype=leaf.dtype, device="cpu")
    return adapter.field_of(leaf)


def _bytes_of(fields: list[Field], dtype: torch.dtype | None) -> int:
    """Return the bytes of leaves on the device, with images and the like in this dtype."""
    total = 0
    for field in fields:
        if not field.by_reference:
            images = field.shape and (field.dtype == np.uint8 or field.dtype.kind in "fV")
            size = dtype.itemsize if dtype is not None and images else field.dtype.itemsize
            total += field.size_bytes // field.dtype.itemsize * size
    return total
