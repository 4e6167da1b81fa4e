"""Augmentation on every use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pyecho._core import ConfigError

__all__ = ["Augment", "augmented"]

Augment = Callable[[Any, np.random.Generator], Any]


def augmented(
    batches: Iterator[Any], augment: Augment, seed: int, epoch: int, *, with_info: bool
) -> Iterator[Any]:
    """Yield ``augment(batch, rng)`` for each batch.

    Each batch has a generator of its own, seeded by its number, so that what becomes of a batch
    does not depend on what was drawn for those before it.
    """
    for number, emitted in enumerate(batches):
        batch, info = emitted if with_info else (emitted, None)
        rng = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, number, epoch]))
        result = augment(batch, rng)
        if result is None:
            raise ConfigError(
                "augment returned None; it must return the batch, also when it changes it in place"
            )
        yield (result, info) if with_info else result
        del emitted, batch, result  # the consumer alone decides how long a batch lives
