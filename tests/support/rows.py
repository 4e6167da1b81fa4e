"""Collecting what a loader emits, without keeping its batches."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def rows_of(batches: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """All rows of all batches, copied: the batches themselves are dropped, one after the other."""
    return np.concatenate([batch.copy() for batch in batches])
