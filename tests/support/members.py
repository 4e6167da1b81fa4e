"""Members of columns, and what compares items of any kind."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np


class Dataset:
    """A map-style dataset."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = list(items)
        self.read: list[Any] = []

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        self.read.append(index)
        return self.items[index]


class Unsized:
    """Can be iterated, again and again, and has no length."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = list(items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


class Sliced:
    """Slices into arrays, in chunks of some rows, as an array of zarr, which has no len()."""

    def __init__(self, array: np.ndarray[Any, Any], *, rows: int = 2) -> None:
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.chunks = (rows, *array.shape[1:])
        self.read: list[Any] = []

    def __getitem__(self, index: Any) -> Any:
        self.read.append(index)
        return self._array[index].copy()


class Sized(Sliced):
    """With len(), as a dataset of h5py."""

    def __len__(self) -> int:
        return len(self._array)


def plain(value: Any) -> Any:
    """Return an item as plain values, with the names of its types."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value).__name__, [plain(each) for each in value]
    return np.asarray(value).tolist()
