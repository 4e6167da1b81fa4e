"""The pipeline of a loader whose batches go to a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from pyecho import cuda
from pyecho._core import ConfigError, CudaError
from pyecho.config import Config
from pyecho.device.blocks import Blocks
from pyecho.device.leaves import functions
from pyecho.device.place import Device, present_device
from pyecho.device.pool import MOST_CHUNKS, DeviceEcho
from pyecho.device.runtime import runtime
from pyecho.device.tables import WORD_BYTES
from pyecho.device.upload import Uploaded, Uploader
from pyecho.fitted import Fitted
from pyecho.items.nest import flatten, leaves_of
from pyecho.items.spec import Adapter, EchoInfo, Field
from pyecho.run.augment import random_bits
from pyecho.run.host import HostEcho, add_augmentation, example_echo, item_echo, items_ahead
from pyecho.run.pipeline import Pipeline
from pyecho.source import Source
from pyecho.warn import warn


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
    if there.max_bytes is not None:  # what is read or made ahead is there, too
        few = config.batch_size is None and not config.linked
        fitted = fitted._replace(most_ahead=1, wiring=replace(fitted.wiring, reads_few=few))
    augment = None
    if there.augment is not None:
        augment = device_augmentation(there.augment, config, device)
    uploader = Uploader(device, dtype=there.dtype, augment=augment)
    made = (source, fitted, first, adapter)
    has_link = True  # whose thread finishes batches before the consumer has them
    bring: Callable[[Any], Any] | None = None  # to the device, if batches are elsewhere
    echo: Any
    if there.echo:
        # The pool is what there is memory for, and it is no consumer's GIL that a link lets go of.
        blocks_for = partial(Blocks, limit=there.max_bytes, spares=False)
        echo = _device_echo(source, fitted, first, adapter, uploader, blocks_for)
    elif config.batch_size is not None:
        blocks_for = None
        if not config.linked:
            dtype = None if augment else there.dtype
            blocks_for = partial(Blocks, dtype=dtype, limit=there.max_bytes)
        echo = _pinned(partial(example_echo, *made), config, uploader, blocks_for)
        if echo.blocks is None:
            bring = uploader.upload_augmented
        else:
            has_link = augment is not None
    elif config.linked:
        echo = item_echo(*made, prepare=uploader.expect)
        bring = uploader.upload_augmented
    else:
        # Every item is uploaded once, by the feeder. What augment makes of a use there is another
        # batch: then another thread augments uses.
        has_link = augment is not None
        fetch = attrgetter("item") if has_link else uploader.deliver
        to_host = uploader.to_host
        echo = item_echo(*made, prepare=uploader.upload_item, fetch=fetch, to_host=to_host)
    pipeline = Pipeline(echo, fitted, adapter, sent_bytes=partial(_sent_bytes, uploader, echo))
    add_augmentation(pipeline)
    if has_link:
        _add_upload(pipeline, uploader, bring)
    _check_memory(pipeline, first, adapter, uploader, there)
    return pipeline


# ---------------------------------------------------------------- nodes


def _pinned(
    make: Callable[..., HostEcho],
    config: Config,
    uploader: Uploader,
    blocks_for: Callable[..., Blocks] | None,
) -> HostEcho:
    """Return example echoing with batches in pinned memory, if that can be had.

    From there native threads send them to the device, if there are `blocks_for` that, a runtime,
    and the functions of PyTorch's.
    """
    if config.pin_memory is False:
        return make()
    try:
        found = None if functions() is None else runtime()
        if blocks_for is not None and found is not None:
            return make(blocks_for=partial(blocks_for, uploader.device, found))
        return make(pinned=True)
    except CudaError as error:
        if config.pin_memory or cuda.why_not():
            raise
        warn(
            f"batches are in pageable memory, which makes copies to the device slower: {error}",
            RuntimeWarning,
        )
        return make()


def _sent_bytes(uploader: Uploader, echo: Any) -> int:
    return uploader.h2d_bytes + (echo.blocks.uploads.sent_bytes if echo.blocks else 0)


def _device_echo(
    source: Source,
    fitted: Fitted,
    first: Any,
    adapter: Adapter,
    uploader: Uploader,
    blocks_for: Callable[..., Blocks],
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
        with_info=False,
        steps_per_epoch=None,
        shards=None,
    )
    staging_fitted = fitted._replace(config=staged, capacity=1)
    make = partial(example_echo, source, staging_fitted, first, adapter)
    with uploader.computing():  # else the first chunks would wait for the consumer's stream
        staging = _pinned(make, config, uploader, blocks_for)
    return DeviceEcho(staging, fitted._replace(slots_ahead=1), adapter, uploader, chunk=chunk)


def _check_leaf(adapter: Adapter, path: str, leaf: Any) -> None:
    """Raise `ConfigError`, with the name of the leaf, for a tensor that is not in host memory."""
    try:
        adapter.as_array(leaf)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _add_upload(pipeline: Pipeline, uploader: Uploader, bring: Callable[[Any], Any] | None) -> None:
    """Have a thread bring the batch of every use to the device, and finish it there."""
    with_info = pipeline.fitted.config.with_info
    has_info = with_info or isinstance(pipeline.echo, DeviceEcho)

    def make(emission: Any, epoch: int, number: int) -> Uploaded:
        batch, info = emission if has_info else (emission, None)
        if info is not None:  # often a view of the batch's host memory, which goes back now
            info = EchoInfo(*(column.copy() for column in info))
        batch = batch if bring is None else bring(batch)
        return uploader.finish(batch, epoch, number, info)

    def fetch(made: Uploaded, number: int, use: int) -> Any:
        batch = uploader.deliver(made)
        return (batch, made.info) if with_info else batch

    pipeline.add_link(
        "upload",
        make,
        fetch=fetch,
        within=uploader.computing,
        to_state=lambda made: [uploader.to_host(made), *(made.info or ())],
        of_state=uploader.upload_again,
    )


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


def _check_memory(
    pipeline: Pipeline, first: Any, adapter: Adapter, uploader: Uploader, there: Device
) -> None:
    """Raise `ConfigError` if more would be kept on the device than `Device.max_bytes`."""
    limit, dtype = there.max_bytes, there.dtype
    config = pipeline.fitted.config
    echo: Any = pipeline.echo
    if limit is None:
        return
    if config.batch_size is None:
        kept = config.prefetch
        if not config.linked:
            kept = pipeline.fitted.capacity + items_ahead(pipeline.fitted, first)
        fields = [_field_of(leaf, adapter, uploader) for leaf in leaves_of(first)]
        needed = kept * _bytes_of(fields, dtype)
        what = f"{kept} items"
    else:
        fields = leaves_of(echo.spec if isinstance(echo, DeviceEcho) else echo.row_spec)
        batches = config.prefetch if pipeline.links else 0
        needed = batches * config.batch_size * _bytes_of(fields, dtype)
        if echo.blocks is not None:
            needed += echo.blocks.size_bytes
            batches += 0 if isinstance(echo, DeviceEcho) else echo.blocks.count
        what = f"{batches} batches"
        if isinstance(echo, DeviceEcho):
            slots, row_bytes = echo.plan.slots, _bytes_of(fields, None)
            needed += slots * (row_bytes + -row_bytes % WORD_BYTES)
            needed += MOST_CHUNKS * echo.chunk * row_bytes
            what = f"a pool of {slots} examples, its chunks, and {what},"
    if needed > limit:
        raise ConfigError(
            f"{what} need {needed} bytes on {uploader.device}, but Device(max_bytes=) is {limit}; "
            "lower shuffle_buffer, batch_size or prefetch, or raise it"
        )


def _field_of(leaf: Any, adapter: Adapter, uploader: Uploader) -> Field:
    if uploader.is_there(leaf):
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
