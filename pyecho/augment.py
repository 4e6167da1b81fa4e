"""Augmentation on every use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from pyecho._core import ConfigError

__all__ = ["Augment", "Augmenter"]

Augment = Callable[[Any, np.random.Generator], Any]


class Augmenter:
    """Calls ``augment(batch, rng)`` with random numbers that depend on the batch's number alone.

    The generator of each call is seeded by (seed, epoch, number), so that the result depends
    neither on the batches before it nor on threads. Random functions of PyTorch draw from a
    generator seeded likewise instead of the global one, see `pyecho.torch_random`; PyTorch must
    have been imported before the call.

    Several threads may call `apply` at the same time.
    """

    def __init__(self, augment: Augment, seed: int) -> None:
        self._augment = augment
        self._seed = seed

    def apply(self, batch: Any, epoch: int, number: int) -> Any:
        """Return what ``augment`` makes of an epoch's batch of this number, from 0.

        Raises `ConfigError` if that is None.
        """
        rng = np.random.Generator(self._bits(0, epoch, number))
        with self._seeded_torch(epoch, number):
            result = self._augment(batch, rng)
        if result is None:
            raise ConfigError(
                "augment returned None; it must return the batch, also when it changes it in place"
            )
        return result

    def _bits(self, stream: int, epoch: int, number: int) -> np.random.Philox:
        return np.random.Philox(key=self._seed, counter=[0, stream, number, epoch])

    def _seeded_torch(self, epoch: int, number: int) -> AbstractContextManager[Any]:
        if sys.modules.get("torch") is None:
            return nullcontext()
        from pyecho.torch_random import SeededTorch

        return SeededTorch(lambda: int(self._bits(1, epoch, number).random_raw()))
