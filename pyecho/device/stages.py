"""The stages of a loader whose batches go to a device."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from typing import Any

from pyecho import _core, cuda
from pyecho._core import CudaError
from pyecho.config import Config
from pyecho.device.echo import DeviceEcho
from pyecho.device.upload import Uploaded, Uploader
from pyecho.source import Source
from pyecho.stages import Stages
from pyecho.stats import EchoStats


class DeviceStages(Stages):
    """Stages with one that brings batches to a device, or makes them there (`echo_on_device`)."""

    def __init__(
        self,
        source: Source,
        config: Config,
        first: Any,
        *,
        uploader: Uploader,
        echo_on_device: bool,
        **more: Any,
    ) -> None:
        self._uploader = uploader
        self._echo_on_device = echo_on_device
        self._echo: DeviceEcho | None = None
        super().__init__(source, config, first, **more)

    def _build(self, first: Any) -> None:
        if self._echo_on_device:
            self._build_device_echo(first)
        elif self.config.batch_size is None and not self.config.linked:
            # Every item is uploaded once, by the feeder. What augment makes of a use is another
            # batch: then uses are uploaded, not items.
            uploader = self._uploader
            self._stages = [self._echo_queue(first, uploader.upload, uploader.deliver)]
        else:
            super()._build(first)
            upload = partial(_upload_use, self._uploader, self.config.with_info)
            self._add_link("upload", upload, fetch=self._uploader.deliver)

    def _build_device_echo(self, first: Any) -> None:
        """Examples cross the link once, in chunks; batches of their uses are made on the device."""
        config = self.config
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
        self._echo = echo = DeviceEcho(
            self._spec,
            staging,
            _core.BatchPlan(config),
            self._uploader,
            with_info=config.with_info,
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
        if self.config.memory == "pageable":
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
            stats = replace(stats, emitted=echo.emitted, occupancy=occupancy)
        return replace(stats, h2d_bytes=self._uploader.h2d_bytes)


def _upload_use(
    uploader: Uploader, with_info: bool, emitted: Any, epoch: int, number: int
) -> Uploaded:
    """Upload a batch; its info stays on the host. What a link makes of it."""
    batch, info = emitted if with_info else (emitted, None)
    uploaded = uploader.upload(batch)
    if info is not None:  # a view of the batch's host memory, which goes back now
        info = type(info)(*(column.copy() for column in info))
        uploaded = uploaded._replace(item=(uploaded.item, info))
    return uploaded
