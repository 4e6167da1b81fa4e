"""Augmentation on the device, of every use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pyecho._core import ConfigError
from pyecho.config import Config
from pyecho.run.augment import random_bits


class DeviceAugmentation:
    """Calls a loader's ``device_augment(batch, generator)``, on pyecho's stream.

    The generator draws on the device, and is seeded anew for each batch by (seed, epoch, number of
    the batch), so the result depends neither on the batches before it nor on threads. For one
    thread.
    """

    def __init__(
        self, function: Callable[[Any, torch.Generator], Any], config: Config, device: torch.device
    ) -> None:
        self._function = function
        self._config = config
        self._generator = torch.Generator(device)

    def __call__(self, batch: Any, epoch: int, number: int) -> Any:
        """Return what becomes of an epoch's batch of this number, from 0."""
        self._generator.manual_seed(int(random_bits(self._config, 2, epoch, number).random_raw()))
        batch = self._function(batch, self._generator)
        if batch is None:
            raise ConfigError(
                "device_augment returned None; it must return the batch, also when it changes it "
                "in place"
            )
        return batch
