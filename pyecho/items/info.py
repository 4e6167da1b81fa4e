"""Information about the rows of a batch: uses, items, validity."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class EchoInfo(NamedTuple):
    """Which items a batch is made of, row by row."""

    source_index: NDArray[np.int64]
    """Number of the item in source order, from 0."""
    use: NDArray[np.int32]
    """Which use of the item this is; 0 is the fresh one."""
