"""Datasets for workers, and what a loader makes of them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import pyecho


class Rows:
    """A map-style dataset of which every item tells its index."""

    def __init__(self, items: int = 60) -> None:
        self.items = items

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.full((3, 5), index, np.float32), "index": index, "none": np.zeros((2, 0))}


FREE = pyecho.Field((None, None, 3), "uint8", max_bytes=1 << 20)


class Sized(Rows):
    """Has leaves of any size, some of which are not contiguous, and others empty."""

    fields: ClassVar = {
        "x": FREE,
        "wide": pyecho.Field((4, None), "float32", max_bytes=4 << 20, pad=-1),
    }

    def __getitem__(self, index: int) -> dict[str, Any]:
        rng = np.random.default_rng(index)
        height, width, length = (int(each) for each in rng.integers((0, 1, 0), (400, 400, 90)))
        length *= 1 + 400 * (index % 5 == 0)
        x = np.full((height, width, 3), index % 256, np.uint8)
        wide = np.full((length, 4), index, np.float32).T
        return {"x": x[:, ::2] if index % 3 == 0 else x, "wide": wide, "index": index}


class Named(Rows):
    """Also has a leaf that travels by reference."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return super().__getitem__(index) | {"name": f"item {index}"}


class Batches(Rows):
    """Items are batches of three rows."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.repeat(np.arange(3 * index, 3 * index + 3)[:, None], 4, axis=1)}


class Deadly(Rows):
    """Kills the process that makes an item, until a file is there."""

    def __init__(self, path: Path | None, items: int = 60, at: int = 20) -> None:
        super().__init__(items)
        self.path, self.at = path, at

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.at and not (self.path and self.path.exists()):
            if self.path:
                self.path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Raising(Rows):
    """Raises at an item."""

    def __init__(self, error: BaseException, items: int = 60, at: int = 20) -> None:
        super().__init__(items)
        self.error, self.at = error, at

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.at:
            raise self.error
        return super().__getitem__(index)


class Slow(Rows):
    """Sleeps at some items."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index % 7 == 0:
            time.sleep(0.003)
        return super().__getitem__(index)


def plain(value: Any) -> Any:
    """Return a batch or item as lists, dicts and numbers, to compare."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, pyecho.Ragged):
        return [(row.shape, row.tobytes()) for row in value]
    if isinstance(value, pyecho.Padded):
        return [value.values.shape, value.values.tobytes(), value.lengths.tolist()]
    return value.tolist() if hasattr(value, "tolist") else value


def emitted(
    dataset: Any, iterations: int = 2, loader: Any = pyecho.EchoLoader, **options: Any
) -> Any:
    """Return all batches, with their info, of some iterations."""
    with loader(dataset, options.pop("factor", 2), with_info=True, **options) as batches:
        return [[plain(each) for each in batches] for _ in range(iterations)]


def workers_of(loader: Any) -> list[int]:
    """Return the numbers of the worker processes of a loader."""
    pool = loader._source._pool
    return [] if pool is None else [each.pid for each in pool._workers if each is not None]
