"""The NumPy loader, as a user writes it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pyecho


def source() -> Iterator[dict[str, Any]]:
    for number in range(4):
        yield {"image": np.zeros((2, 2), np.uint8), "label": number}


def augment(batch: dict[str, NDArray[np.uint8]], rng: np.random.Generator) -> dict[str, Any]:
    batch["image"] += rng.integers(0, 9, batch["image"].shape, np.uint8)
    return batch


loader = pyecho.EchoLoader(
    source(),
    2.5,
    batch_size=2,
    unbatch=False,
    shuffle_buffer=4,
    unique_in_batch=True,
    drop_last=True,
    seed=1,
    prefetch=3,
    threads=None,
    augment=augment,
    max_bytes=2**30,
    with_info=True,
    copy=False,
    progress=False,
)
loader.set_epoch(3)
with loader as entered:
    for _batch, info in entered:
        index: NDArray[np.int64] = info.source_index

stats: pyecho.EchoStats = loader.stats()
factor: float = stats.effective_factor
fresh: int = stats.fresh
length: int = len(pyecho.EchoLoader([1, 2, 3]))
