"""Sources of the registry."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import native
import numpy as np
import pyarrow as pa
import torch
from drivers import Iterated
from resuming import Indexed, Stateful, StatefulIterator, columns
from torch.utils.data import DataLoader, WeightedRandomSampler

import pyecho


class Rows(Indexed):
    """A map-style dataset for a DataLoader."""

    def __getitem__(self, index: int) -> int:
        return range(self.items)[index]


def table(items: int) -> Any:
    return pa.table({"n": range(items), "name": [f"item {item}" for item in range(items)]})


class Stream:
    """Record batches of uneven sizes."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def to_batches(self) -> Any:
        for begin in range(0, len(self.table), 4):
            yield from self.table.slice(begin, 1).to_batches()
            yield from self.table.slice(begin + 1, 3).to_batches()


class Query:
    """Makes a new stream each time, and knows no length, as a relation of DuckDB's."""

    def __init__(self, items: int) -> None:
        self.items = items

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return table(self.items).__arrow_c_stream__(requested_schema)


class Native(native.Numbers):
    """Puts its examples itself."""

    def __pyecho_spec__(self) -> Any:
        return {"n": super().__pyecho_spec__()["x"]}


def ragged(items: int) -> list[dict[str, Any]]:
    """Return examples of any size, some of which are not contiguous, and one without elements."""
    sizes = [(n, n % 4, n % 3, n % 5) for n in range(items)]
    return [
        {
            "n": n,
            "tokens": np.full(2 * length, n)[::2],
            "block": np.full((width, height), n).T,
            "none": np.zeros((2, 0)),
        }
        for n, length, height, width in sizes
    ]


def lists_in(items: int) -> list[dict[str, Any]]:
    """Return batches with a column of arrays, which look like a nest in later batches."""
    return [
        {"n": np.arange(*each), "list": [np.full(1 + n % 3 if n else 5, n) for n in range(*each)]}
        for each in pairwise([0, *range(1, items, 3), items])
    ]


class Batches(Indexed):
    """A map-style dataset of batches of two rows."""

    def __getitem__(self, index: int) -> Any:
        index = range(self.items)[index]
        return columns(2 * index, 2 * index + 2)


class Lists(Indexed):
    """Items are lists of none to two examples, or one."""

    def __getitem__(self, index: int) -> Any:
        first = rows_of_lists(range(self.items)[index], 0)
        examples = list(map(np.int64, range(first, first + index % 3)))
        return examples[0] if index % 6 == 1 else examples


def rows_of_lists(items: int, number: int) -> int:
    return sum(index % 3 for index in range(items))


class Told(Iterated):
    """Has another order in each epoch, which it is told."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        return iter(random.Random(self.epoch).sample(self.items, len(self.items)))


class SamplerReader:
    """A sampler that draws from the global generator of torch, as users write them."""

    def __init__(self, items: int) -> None:
        self.items = items

    def __len__(self) -> int:
        return self.items

    def __iter__(self) -> Iterator[int]:
        places = list(range(self.items))
        while places:
            yield places.pop(int(torch.randint(len(places), ())))


def dataloader(items: int, **options: Any) -> Any:
    return DataLoader(Rows(items), shuffle=True, **options)


def unchanged(item: Any) -> Any:
    return item


def weighted(items: int) -> Any:
    sampler = WeightedRandomSampler([1.0] * items, items)
    return DataLoader(Rows(items), batch_size=2, sampler=sampler)


def collated(rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int64)


def lists(items: int) -> Any:
    """Return a loader of batches of uneven sizes, some of them empty."""
    ends = sorted([0, 0, *range(1, items, 3), *range(4, items, 6), items])
    indices = [[*range(*each)] for each in pairwise(ends)]
    return DataLoader(Rows(items), batch_sampler=indices, collate_fn=collated)


class Curriculum(SamplerReader):
    """In order at first; later epochs are shuffled by the global generator of torch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.items).tolist() if self.epoch else range(self.items))


def generated(items: int) -> Iterator[np.int64]:
    yield from map(np.int64, range(items))


def pictures(items: int) -> list[dict[str, Any]]:
    """Return examples with a leaf that tells where a window begins."""
    return [{"n": item, "picture": 100 * item + np.arange(9)} for item in range(items)]


def rows_of_batches(items: int, number: int) -> int:
    """Return the rows of a pass of `StatefulBatches`."""
    return sum(each % 3 for each in range(number * items + 1, (number + 1) * items + 1))


def echoed(items: int) -> Any:
    """Return a loader as a source."""
    return pyecho.EchoLoader(list(range(items)), 2, batch_size=3, seed=5)


def fields(pad: int | None = None) -> dict[str, Any]:
    block = pyecho.Field((None, None), "int64", max_bytes=64)
    tokens = pyecho.Field((None,), "int64", max_bytes=24, pad=pad)
    return {"fields": {"tokens": tokens, "block": block}}


def seeded(items: int) -> Any:
    """Return a loader whose order is that of a generator of the user's, which goes on and on."""
    return dataloader(items, batch_size=2, generator=torch.Generator().manual_seed(5))


class SizedStateful(Stateful):
    def __len__(self) -> int:
        return self.items


class Bytes(Iterated):
    """Its iterators have states of bytes, as those of Grain."""

    def __iter__(self) -> Any:
        return BytesIterator(self.items)


class BytesIterator(StatefulIterator):
    state_dict = load_state_dict = None

    def get_state(self) -> bytes:
        return b"%d" % self.place

    def set_state(self, state: bytes) -> None:
        self.place = int(state)
