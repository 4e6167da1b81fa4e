"""The stages of a loader whose batches go to a device."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from pyecho import _core, cuda
from pyecho._core import ConfigError, CudaError
from pyecho.buffer import EchoInfo
from pyecho.config import Config
from pyecho.device.augment import DeviceAugmentation
from pyecho.device.echo import DeviceEcho
from pyecho.device.outputs import FixedOutputs
from pyecho.device.place import present_device
from pyecho.device.rows import DeviceRows
from pyecho.device.tensors import TICKET
from pyecho.device.upload import StreamUploader, Uploaded, Uploader
from pyecho.items.nest import leaves_of
from pyecho.items.sharing import own
from pyecho.items.spec import Field
from pyecho.run.ranks import Extent
from pyecho.run.stages import Stages
from pyecho.source.passes import Opening
from pyecho.source.source import Source
from pyecho.stats import EchoStats


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Options of a loader with a device; `pyecho.torch.EchoLoader` says what they do."""

    device: torch.device
    echo_on: Literal["host", "device"] = "host"
    dtype: torch.dtype | None = None
    augment: Callable[[Any, torch.Generator], Any] | None = None
    max_bytes: int | None = None


class DeviceStages(Stages):
    """Stages with one that brings batches to a device, or makes them there.

    Raises also what is missing for that: `CudaError`, or `ConfigError`. The driver is loaded here.
    """

    def __init__(
        self,
        source: Source,
        config: Config,
        first: Any,
        *,
        options: DeviceOptions,
        outputs: FixedOutputs | None,
        **more: Any,
    ) -> None:
        self._options = options
        self._outputs = outputs
        self._device = present_device(options.device)
        self._rows: DeviceRows | None = None
        self._echo: DeviceEcho | None = None
        super().__init__(source, config, first, **more)

    def _build(self, first: Any) -> None:
        config = self.config
        by_item = config.batch_size is None and not config.linked
        augmented = self._options.augment is not None
        self._uploader = uploader = self._new_uploader(last=not (augmented and by_item))
        if self._options.echo_on == "device":
            self._build_device_echo(first)
        elif by_item and not augmented:
            # Every item is uploaded once, by the feeder. What augment makes of a use is another
            # batch: then uses are uploaded, not items.
            self._stages = [self._echo_queue(first, uploader.upload_item, uploader.deliver)]
        elif by_item:
            self._stages = [self._echo_queue(first, uploader.upload_item, copied=False)]
            augmenter = self._new_uploader(last=True)
            self._link_to_device(augmenter, partial(_augment_use, augmenter, config))
        else:
            super()._build(first)
            self._link_to_device(uploader, partial(_upload_use, uploader, config.with_info))
        self._check_memory(first)

    def _new_uploader(self, *, last: bool) -> Uploader:
        """Make an uploader; the last one before the consumer augments and fills fixed outputs."""
        options, device = self._options, self._device
        augment = None
        if last and options.augment is not None:
            augment = DeviceAugmentation(options.augment, self.config, device)
        make = StreamUploader if device.type in ("cuda", "xpu") else Uploader
        outputs = self._outputs if last else None
        return make(device, dtype=options.dtype, augment=augment, outputs=outputs)

    def _echo_queue(self, first: Any, prepare: Any = None, fetch: Any = None, **more: Any) -> Any:
        return super()._echo_queue(first, prepare or self._uploader.expect, fetch, **more)

    def _link_to_device(self, uploader: Uploader, make: Callable[[Any, int, int], Any]) -> None:
        self._add_device_link(uploader, make, partial(_deliver_use, uploader))

    def _add_device_link(
        self,
        uploader: Uploader,
        make: Callable[[Any, int, int], Any],
        fetch: Callable[[Any, int, int], Any],
        upstream: Any = None,
    ) -> None:
        self._add_link(
            "upload",
            make,
            fetch=fetch,
            upstream=upstream,
            within=uploader.computing,
            to_state=partial(_use_to_state, uploader),
            of_state=partial(_use_of_state, uploader),
        )

    def _build_device_echo(self, first: Any) -> None:
        """Examples cross the link once, in chunks; batches of their uses are made on the device."""
        config, uploader = self.config, self._uploader
        assert config.batch_size is not None
        self._rows = rows = DeviceRows(uploader, first, batched=self._source.batched)
        chunk_rows = max(1, config.batch_size // int(config.most_uses))
        staging = self._echo_buffer(
            rows.deposit(first) if rows else first,
            batch_size=chunk_rows,
            factor=1,
            shuffle_buffer=1,
            unique_in_batch=False,
            drop_last=False,
            pad_last=False,
            with_info=False,
            steps_per_epoch=None,
            shards=None,
            rank=0,
            ranks=1,
        )
        if rows:
            staging._set_prepare(rows.deposit)
        plan = _core.BatchPlan(config)
        self._echo = echo = DeviceEcho(
            self._spec,
            staging,
            plan,
            uploader,
            rows,
            adapter=self._adapter,
            with_info=config.with_info,
            polled_rows=0 if config.adaptive is None else chunk_rows,
        )
        self._stages = [staging]
        self._add_device_link(uploader, echo.finish, echo.deliver, echo)

    def _items_ahead(self, first: Any) -> int:
        ahead = super()._items_ahead(first)
        return ahead if self._options.max_bytes is None else min(ahead, self.config.prefetch)

    def _check_memory(self, first: Any) -> None:
        """Raise `ConfigError` if more would be kept on the device than `max_device_bytes`."""
        limit, config = self._options.max_bytes, self.config
        if limit is None:
            return
        if config.batch_size is None:
            leaves = leaves_of(first)
            fields = [
                self._adapter.field_of(leaf) for leaf in leaves if not self._uploader.is_there(leaf)
            ]
            kept = config.prefetch if config.linked else config.capacity + self._items_ahead(first)
            there = DeviceRows(self._uploader, first, batched=False).row_bytes(self._options.dtype)
            needed = kept * (_bytes_of(fields, self._options.dtype) + there)
            what = f"{kept} items"
        else:
            fields = leaves_of(self._spec)
            rows, dtype = self._rows, self._options.dtype
            example = _bytes_of(fields, dtype) + (rows.row_bytes(dtype) if rows else 0)
            needed = config.prefetch * config.batch_size * example
            what = f"{config.prefetch} batches"
            if self._echo is not None:
                slots = self._echo.plan.slots
                stored = _bytes_of(fields, None) + (rows.row_bytes(None) if rows else 0)
                needed += slots * stored
                what = f"a pool of {slots} examples, and {what},"
        if needed > limit:
            raise ConfigError(
                f"{what} need {needed} bytes on {self._device}, but max_device_bytes is {limit}; "
                "lower shuffle_buffer, batch_size or prefetch, or raise max_device_bytes"
            )

    def begin(self, epoch: int, extent: Extent, opening: Opening) -> None:
        """Begin the pool on the device as well."""
        if self._echo is not None:
            self._echo.begin(epoch, extent)
            extent = Extent(extent.items)
        super().begin(epoch, extent, opening)

    # ------------------------------------------------------------ states

    @property
    def _echoing(self) -> Any:
        return self._echo or super()._echoing

    def _saved_spec(self) -> Any:
        if not self._rows:
            return self._spec
        return self._rows.spec(self._spec, self._adapter.field_of)

    def _to_host(self, item: Any) -> Any:
        return self._uploader.to_host(item) if isinstance(item, Uploaded) else item

    # ------------------------------------------------------------

    def _echo_buffer(self, first: Any, **changes: Any) -> Any:
        if self.config.memory == "pageable" or not self._uploader.has_streams:
            return super()._echo_buffer(first, **changes)
        try:
            return super()._echo_buffer(first, memory="pinned", **changes)
        except CudaError as error:
            if self.config.memory == "pinned" or cuda.why_not():
                raise
            warnings.warn(
                f"batches are in pageable memory, which makes copies to the device slower: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
            return super()._echo_buffer(first, **changes)

    def stats(self) -> EchoStats:
        """Return those of the pool on the device, and of the uploads."""
        stats, echo = super().stats(), self._echo
        if echo is not None:
            occupancy = echo.plan.resident / self.config.capacity
            log = echo.plan.log
            counts = {"emitted": echo.emitted, "additional": echo.additional}
            stats = replace(stats, **counts, occupancy=occupancy, log=log)
        return replace(stats, h2d_bytes=self._uploader.h2d_bytes)


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
