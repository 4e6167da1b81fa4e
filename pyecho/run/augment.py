"""Collation and augmentation, on every use."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.config import Config


class Augmentation:
    """Does what ``collate_fn`` and ``augment`` of a loader do to a batch. What a link makes of it.

    The generator of each ``augment(batch, rng)`` is seeded by (seed, epoch, number), so that the
    result depends neither on the batches before it nor on threads. Random functions of PyTorch draw
    from a generator seeded likewise instead of the global one, see `pyecho.torch.random`; PyTorch
    must have been imported before the call.

    Several threads may call it at the same time.
    """

    def __init__(self, config: Config) -> None:
        self._config = config

    def __call__(self, emission: Any, epoch: int, number: int) -> Any:
        """Return what becomes of an epoch's batch of this number, from 0; its info stays."""
        config = self._config
        batch, info = emission if config.with_info else (emission, None)
        if config.collate_fn is not None:
            batch = config.collate_fn(batch)
        if config.augment is not None:
            rng = np.random.Generator(random_bits(config, 0, epoch, number))
            with self._seeded_torch(epoch, number):
                batch = config.augment(batch, rng)
            if batch is None:
                raise ConfigError(
                    "augment returned None; it must return the batch, also when it changes it in "
                    "place"
                )
        return (batch, info) if config.with_info else batch

    def _seeded_torch(self, epoch: int, number: int) -> AbstractContextManager[Any]:
        if sys.modules.get("torch") is None:
            return nullcontext()
        from pyecho.torch.random import SeededTorch

        bits = random_bits(self._config, 1, epoch, number)
        return SeededTorch(lambda: int(bits.random_raw()))


def random_bits(config: Config, use: int, epoch: int, number: int) -> np.random.Philox:
    """Return the random bits for a batch of an epoch; each `use` and rank has others."""
    return np.random.Philox(key=config.seed, counter=[0, use + (config.rank << 8), number, epoch])
