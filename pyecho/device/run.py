"""The run of a loader whose batches go to a device."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from pyecho import _core
from pyecho.adapter import Adapter
from pyecho.buffer import EchoBuffer
from pyecho.config import Config
from pyecho.device.echo import DeviceEcho, EchoArrays
from pyecho.device.upload import DEPTH, Uploader, upload_use
from pyecho.run import Run
from pyecho.source import Source
from pyecho.stats import EchoStats

__all__ = ["DeviceRun"]


class DeviceRun(Run):
    """A run with a stage that brings batches to a device, or makes them there.

    Parameters
    ----------
    source, config, adapter
        See `Run`.
    arrays
        The device arrays that batches become.
    echo_on_device
        Whether examples are echoed on the device.
    """

    def __init__(
        self,
        source: Source,
        config: Config,
        adapter: Adapter,
        arrays: EchoArrays,
        *,
        echo_on_device: bool,
    ) -> None:
        self._arrays = arrays
        self._echo_on_device = echo_on_device
        self._uploader: Uploader | None = None
        self._echo: DeviceEcho | None = None
        super().__init__(source, config, adapter)

    def _links_needed(self) -> int:
        return super()._links_needed() + 1

    def _build(self, first: Any) -> None:
        config = self._config
        self._uploader = uploader = Uploader(self._arrays, config.prefetch + 1)
        if self._echo_on_device:
            self._build_device_echo(first)
            return
        augmented = super()._links_needed() > 0
        if config.batch_size is None and not augmented:
            # Every item is uploaded once, by the feeder. What augment makes of a use is another
            # batch: then uses are uploaded, not items.
            self._stages = [self._echo_queue(first, uploader.upload, uploader.deliver)]
            return
        self._stages = [
            self._echo_queue(first) if config.batch_size is None else self._echo_buffer(first)
        ]
        if augmented:
            self._add_augmentation()
        make = partial(upload_use, uploader, config.with_info)
        self._add_link("upload", make, fetch=uploader.deliver)

    def _build_device_echo(self, first: Any) -> None:
        """Examples cross the link once, in chunks; batches of their uses are made on the device."""
        config = self._config
        assert config.batch_size is not None
        assert self._uploader is not None
        staging = self._echo_buffer(
            first,
            batch_size=max(1, config.batch_size // int(config.factor)),
            factor=1,
            capacity=1,
            unique_in_batch=False,
            drop_last=False,
            with_info=False,
            steps_per_epoch=None,
        )
        plan = _core.BatchPlan(replace(config, shuffle_buffer=self._capacity, epoch=self.epoch))
        self._echo = echo = DeviceEcho(
            self._spec, staging, plan, self._arrays, self._uploader, with_info=config.with_info
        )
        self._stages = [staging]
        self._add_link(
            "echo", lambda batch, epoch, number: batch, fetch=echo.deliver, upstream=echo
        )

    def _begin_stages(self, items: int | None) -> None:
        if self._echo is not None:
            self._echo.begin(self.epoch, items)
        super()._begin_stages(items)

    def _echo_buffer(self, first: Any, **echo: Any) -> EchoBuffer:
        return super()._echo_buffer(first, device=self._arrays.ordinal, _uploaded=True, **echo)

    def _batches_held(self) -> int:
        return super()._batches_held() + DEPTH

    def _stats(self) -> EchoStats:
        stats = super()._stats()
        echo, uploader = self._echo, self._uploader
        if echo is not None:
            stats = replace(
                stats, emitted=echo.emitted, occupancy=echo.resident / max(1, self._capacity)
            )
        return stats if uploader is None else replace(stats, h2d_bytes=uploader.h2d_bytes)

    def _drop_stages(self) -> None:
        super()._drop_stages()
        self._uploader = self._echo = None
