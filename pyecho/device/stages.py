"""The stages of a loader whose batches go to a device."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from pyecho import _core
from pyecho.config import Config
from pyecho.device.echo import DeviceEcho, EchoArrays
from pyecho.device.upload import DEPTH, Uploader, upload_use
from pyecho.numpy import Adapter
from pyecho.source import Source
from pyecho.stages import Stages
from pyecho.stats import EchoStats

__all__ = ["DeviceStages"]


class DeviceStages(Stages):
    """Stages with one that brings batches to a device, or makes them there (`echo_on_device`)."""

    def __init__(
        self,
        source: Source,
        config: Config,
        first: Any,
        *,
        capacity: int,
        by_consumer: bool,
        held: int,
        adapter: Adapter,
        arrays: EchoArrays,
        echo_on_device: bool,
    ) -> None:
        self._arrays = arrays
        self._echo_on_device = echo_on_device
        self._uploader = Uploader(arrays, config.prefetch + 1)
        self._echo: DeviceEcho | None = None
        super().__init__(
            source,
            config,
            first,
            capacity=capacity,
            by_consumer=by_consumer,
            held=0,  # those are on the device
            adapter=adapter,
        )

    def _build(self, first: Any) -> None:
        config, uploader = self._config, self._uploader
        if self._echo_on_device:
            self._build_device_echo(first)
        elif config.batch_size is None and not config.linked:
            # Every item is uploaded once, by the feeder. What augment makes of a use is another
            # batch: then uses are uploaded, not items.
            self._stages = [self._echo_queue(first, uploader.upload, uploader.deliver)]
        else:
            super()._build(first)
            make = partial(upload_use, uploader, config.with_info)
            self._add_link("upload", make, fetch=uploader.deliver)

    def _build_device_echo(self, first: Any) -> None:
        """Examples cross the link once, in chunks; batches of their uses are made on the device."""
        config = self._config
        assert config.batch_size is not None
        staging = self._echo_buffer(
            first,
            batch_size=max(1, config.batch_size // int(config.factor)),
            factor=1,
            shuffle_buffer=1,
            unique_in_batch=False,
            drop_last=False,
            with_info=False,
            steps_per_epoch=None,
        )
        plan = _core.BatchPlan(replace(config, shuffle_buffer=self.capacity))
        self._echo = echo = DeviceEcho(
            self._spec, staging, plan, self._arrays, self._uploader, with_info=config.with_info
        )
        self._stages = [staging]
        self._add_link(
            "echo", lambda batch, epoch, number: batch, fetch=echo.deliver, upstream=echo
        )

    def begin(self, epoch: int, items: int | None, passes: Any) -> None:
        """Begin the pool on the device as well."""
        if self._echo is not None:
            self._echo.begin(epoch, items)
        super().begin(epoch, items, passes)

    def _echo_buffer(self, first: Any, **changes: Any) -> Any:
        return super()._echo_buffer(first, device=self._arrays.ordinal, uploaded=True, **changes)

    def _held_by_links(self) -> int:
        return super()._held_by_links() + self._held_by_a_link() + DEPTH

    def stats(self) -> EchoStats:
        """Return those of the pool on the device, and of the uploads."""
        stats, echo = super().stats(), self._echo
        if echo is not None:
            stats = replace(stats, emitted=echo.emitted, occupancy=echo.resident / self.capacity)
        return replace(stats, h2d_bytes=self._uploader.h2d_bytes)
