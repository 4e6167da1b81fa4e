"""The pipeline of a loader whose batches go to a device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from pyecho import cuda
from pyecho._core import ConfigError, CudaError
from pyecho.config import Config
from pyecho.device.augment import DeviceAugmentation
from pyecho.device.place import present_device
from pyecho.device.pool import DeviceEcho
from pyecho.device.rows import DeviceRows
from pyecho.device.tensors import TICKET
from pyecho.device.upload import StreamUploader, Uploaded, Uploader
from pyecho.items.nest import leaves_of
from pyecho.items.sharing import own
from pyecho.items.spec import Adapter, EchoInfo, Field
from pyecho.run.host import ExampleEcho, HostEcho, add_augmentation, item_echo, items_ahead
from pyecho.run.pipeline import Pipeline
from pyecho.source import Source
from pyecho.warn import warn


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Options of a loader with a device; `pyecho.torch.EchoLoader` says what they do."""

    device: torch.device
    echo_on: Literal["host", "device"] = "host"
    dtype: torch.dtype | None = None
    augment: Callable[[Any, torch.Generator], Any] | None = None
    max_bytes: int | None = None


def device_pipeline(
    source: Source,
    config: Config,
    first: Any,
    *,
    adapter: Adapter,
    options: DeviceOptions,
) -> Pipeline:
    """Return a pipeline that brings batches to a device, or makes them there.

    Raises also what is missing for that: `CudaError`, or `ConfigError`. The driver is loaded here.
    """
    device = present_device(options.device)
    by_item = config.batch_size is None and not config.linked
    if by_item and options.max_bytes is not None:
        config = replace(config, wiring=replace(config.wiring, reads_few=True))
    build = partial(Pipeline, config=config, adapter=adapter)
    augmented = options.augment is not None
    uploader = _uploader(options, config, device, augmented=not (augmented and by_item))
    sent = lambda: uploader.h2d_bytes  # noqa: E731
    if options.echo_on == "device":
        echo = _device_echo(source, config, first, adapter, uploader)
        pipeline = build(echo, sent_bytes=sent)
        _add_upload(pipeline, uploader, echo.finish, echo.deliver)
    elif by_item:
        # Every item is uploaded once, by the feeder. What device_augment makes of a use is another
        # batch: then uses are augmented, not items.
        items = _uploaded_items(source, config, first, adapter, uploader, augmented=augmented)
        pipeline = build(items, sent_bytes=sent)
        if augmented:
            augmenter = _uploader(options, config, device, augmented=True)
            make = partial(_augment_use, augmenter, config)
            _add_upload(pipeline, augmenter, make, partial(_deliver_use, augmenter))
    else:
        host = _pinned_echo if config.batch_size is not None else _expected_echo
        pipeline = build(host(source, config, first, adapter, uploader), sent_bytes=sent)
        add_augmentation(pipeline)
        make = partial(_upload_use, uploader, config.with_info)
        _add_upload(pipeline, uploader, make, partial(_deliver_use, uploader))
    _check_memory(pipeline, first, adapter, uploader, options)
    return pipeline


# ---------------------------------------------------------------- nodes


def _uploader(
    options: DeviceOptions, config: Config, device: torch.device, *, augmented: bool
) -> Uploader:
    """Return an uploader; the last one before the consumer also augments."""
    augment = None
    if augmented and options.augment is not None:
        augment = DeviceAugmentation(options.augment, config, device)
    make = StreamUploader if device.type in ("cuda", "xpu") else Uploader
    return make(device, dtype=options.dtype, augment=augment)


def _uploaded_items(
    source: Source,
    config: Config,
    first: Any,
    adapter: Adapter,
    uploader: Uploader,
    *,
    augmented: bool,
) -> HostEcho:
    """Return batch echoing of items that the feeder uploads."""
    echo = item_echo(
        source,
        config,
        first,
        adapter,
        prepare=uploader.upload_item,
        fetch=None if augmented else uploader.deliver,
        copied=False if augmented else None,
    )
    echo.to_host = partial(_item_to_host, uploader)
    return echo


def _expected_echo(
    source: Source,
    config: Config,
    first: Any,
    adapter: Adapter,
    uploader: Uploader,
) -> HostEcho:
    """Return batch echoing of items that threads augment before they are uploaded."""
    return item_echo(source, config, first, adapter, prepare=uploader.expect)


def _pinned_echo(
    source: Source,
    config: Config,
    first: Any,
    adapter: Adapter,
    uploader: Uploader,
    **more: Any,
) -> ExampleEcho:
    """Return example echoing with batches in pinned memory, if that can be had."""
    make = partial(ExampleEcho, source, config, first, adapter, **more)
    if config.memory == "pageable" or not uploader.has_streams:
        return make()
    try:
        return make(memory="pinned")
    except CudaError as error:
        if config.memory == "pinned" or cuda.why_not():
            raise
        warn(
            f"batches are in pageable memory, which makes copies to the device slower: {error}",
            RuntimeWarning,
        )
        return make()


def _device_echo(
    source: Source, config: Config, first: Any, adapter: Adapter, uploader: Uploader
) -> DeviceEcho:
    """Return the pool on the device: examples cross the link once, in chunks."""
    assert config.batch_size is not None
    rows = DeviceRows(uploader, first, batched=source.batched)
    chunk_rows = max(1, config.batch_size // int(config.most_uses))
    staging_options: dict[str, Any] = {
        "batch_size": chunk_rows,
        "factor": 1,
        "shuffle_buffer": 1,
        "unique_in_batch": False,
        "drop_last": False,
        "pad_last": False,
        "with_info": False,
        "steps_per_epoch": None,
        "shards": None,
    }
    wiring = replace(config.wiring, rank=0, ranks=1)
    staging = _pinned_echo(
        source,
        replace(config, wiring=wiring, **staging_options),
        rows.deposit(first) if rows else first,
        adapter,
        uploader,
        prepare=rows.deposit if rows else None,
    )
    return DeviceEcho(staging, config, uploader, rows, adapter=adapter, chunk=chunk_rows)


def _add_upload(
    pipeline: Pipeline,
    uploader: Uploader,
    make: Callable[[Any, int, int], Any],
    fetch: Callable[[Any, int, int], Any],
) -> None:
    pipeline.add_link(
        "upload",
        make,
        fetch=fetch,
        within=uploader.computing,
        to_state=partial(_use_to_state, uploader),
        of_state=partial(_use_of_state, uploader),
    )


# ---------------------------------------------------------------- uses


def _upload_use(uploader: Uploader, with_info: bool, emitted: Any, epoch: int, number: int) -> Any:
    """Upload a use, of this number in its epoch. What a link makes of it: it, and its info."""
    batch, info = emitted if with_info else (emitted, None)
    if info is not None:  # a view of the batch's host memory, which goes back now
        info = EchoInfo(*(column.copy() for column in info))
    return uploader.finish(uploader.upload_augmented(batch), epoch, number), info


def _augment_use(uploader: Uploader, config: Config, emitted: Any, epoch: int, number: int) -> Any:
    """Make a use of an item on the device, likewise."""
    uploaded, info = emitted if config.with_info else (emitted, None)
    item = own(uploaded.item) if config.copy else uploaded.item
    return uploader.finish(item, epoch, number), info


def _deliver_use(uploader: Uploader, made: tuple[Uploaded, Any], number: int, use: int) -> Any:
    uploaded, info = made
    item = uploader.deliver(uploaded)
    return item if info is None else (item, info)


def _use_to_state(uploader: Uploader, made: tuple[Uploaded, Any]) -> list[Any]:
    uploaded, info = made
    return [uploader.to_host(uploaded), *(info or ())]


def _use_of_state(uploader: Uploader, batch: Any, *info: Any) -> tuple[Uploaded, Any]:
    return uploader.upload_again(batch), EchoInfo(*info) if info else None


def _item_to_host(uploader: Uploader, item: Any) -> Any:
    return uploader.to_host(item) if isinstance(item, Uploaded) else item


# ---------------------------------------------------------------- memory


def _check_memory(
    pipeline: Pipeline, first: Any, adapter: Adapter, uploader: Uploader, options: DeviceOptions
) -> None:
    """Raise `ConfigError` if more would be kept on the device than `max_device_bytes`."""
    limit, config, echo = options.max_bytes, pipeline.config, pipeline.echo
    if limit is None:
        return
    if config.batch_size is None:
        leaves = leaves_of(first)
        fields = [adapter.field_of(leaf) for leaf in leaves if not uploader.is_there(leaf)]
        kept = config.prefetch
        if not config.linked:
            kept = config.capacity + items_ahead(config, first)
        there = DeviceRows(uploader, first, batched=False).row_bytes(options.dtype)
        needed = kept * (_bytes_of(fields, options.dtype) + there)
        what = f"{kept} items"
    else:
        assert isinstance(echo, ExampleEcho | DeviceEcho)
        rows = echo.rows if isinstance(echo, DeviceEcho) else None
        fields, dtype = leaves_of(echo.spec), options.dtype
        example = _bytes_of(fields, dtype) + (rows.row_bytes(dtype) if rows else 0)
        needed = config.prefetch * config.batch_size * example
        what = f"{config.prefetch} batches"
        if isinstance(echo, DeviceEcho):
            slots = echo.plan.slots
            stored = _bytes_of(fields, None) + (rows.row_bytes(None) if rows else 0)
            needed += slots * stored
            what = f"a pool of {slots} examples, and {what},"
    if needed > limit:
        raise ConfigError(
            f"{what} need {needed} bytes on {uploader.device}, but max_device_bytes is {limit}; "
            "lower shuffle_buffer, batch_size or prefetch, or raise max_device_bytes"
        )


def _bytes_of(fields: list[Field], dtype: torch.dtype | None) -> int:
    """Return the bytes that arrays like these take on the device, converted to `dtype`."""
    total = 0
    for field in fields:
        if field.by_reference or field.dtype == TICKET:
            continue
        images = field.shape and (field.dtype == np.uint8 or field.dtype.kind in "fV")
        size = dtype.itemsize if dtype is not None and images else field.dtype.itemsize
        total += math.prod(field.shape) * size
    return total
