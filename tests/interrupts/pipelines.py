"""Pipelines of kinds of sources and ways on whose output is the same in every run.

The machine interrupts those of its own kinds.
"""

from __future__ import annotations

import itertools
import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from interrupts import ended_by_alarm, taken_by
from native import Numbers
from resuming import Indexed, Stateful, plain
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader
from tqdm import tqdm
from tqdm.std import TqdmDefaultWriteLock

import pyecho.torch

tqdm.monitor_interval = 0  # no thread of tqdm's own

LIMIT_SECONDS = 60
ITEMS = 40
ROWS = np.arange(3 * ITEMS).reshape(ITEMS, 3)


class Sized(Sequence[int]):
    """A sequence that is no list."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: Any) -> Any:
        return range(ITEMS)[index]


class Counting:
    """An iterator in Python that advances only after success."""

    place = 0

    def __iter__(self) -> Counting:
        return self

    def __next__(self) -> int:
        if self.place == ITEMS:
            raise StopIteration
        place = self.place
        self.place = place + 1
        return place


class Generating:
    """Read by a generator, which an exception ends: only a thread of its own may read it."""

    def __repr__(self):
        return "Generating"

    def __iter__(self) -> Iterator[int]:
        yield from range(ITEMS)


def memmap() -> Any:
    with tempfile.TemporaryFile() as file:
        rows = np.memmap(file, np.int64, "w+", shape=ROWS.shape)
    rows[...] = ROWS
    return rows


def nested() -> Any:
    return pyecho.EchoLoader(range(ITEMS), 2, batch_size=4, shuffle_buffer=8, seed=5)


SOURCES: dict[str, Callable[[], Any]] = {
    "list": lambda: list(range(ITEMS)),
    "list of dicts": lambda: [{"x": row, "y": number} for number, row in enumerate(ROWS)],
    "tuple": lambda: tuple(range(ITEMS)),
    "array": lambda: ROWS,
    "array of several chunks": lambda: np.arange(200_000, dtype=np.int32),
    "memmap": memmap,
    "map-style dataset": lambda: Indexed(ITEMS),
    "sequence": Sized,
    "iterator in Python": Counting,
    "generator": Generating,
    "DataLoader of 2 workers": lambda: DataLoader(
        torch.from_numpy(ROWS), batch_size=8, num_workers=2
    ),
    "StatefulDataLoader": lambda: StatefulDataLoader(torch.from_numpy(ROWS), batch_size=8),
    "stateful": lambda: Stateful(ITEMS),
    "native": lambda: Numbers(ITEMS),
    "nested loader": nested,
}
ONE_SHOT = ("iterator in Python",)
OWN_STATE = ("stateful", "StatefulDataLoader", "nested loader")
WITH_ITEMS = (*OWN_STATE, "native")  # whose states must have them


def same(batch: Any, rng: Any) -> Any:
    return batch


def pair(examples: list[Any]) -> list[Any]:
    return [*examples, len(examples)]


BATCHES = {"batch_size": 4, "shuffle_buffer": 8}
CONSUMER = BATCHES | {"threads": 0}
CHUNKS = {"factor": 1, "batch_size": 10_000}
PIPELINES: list[tuple[str, dict[str, Any]]] = [
    ("list of dicts", CONSUMER | {"unique_in_batch": True, "progress": True}),
    ("tuple", {"threads": 0, "progress": True}),
    ("array", BATCHES | {"shards": 2, "progress": True}),
    ("array of several chunks", CHUNKS | {"threads": 0}),
    ("array of several chunks", CHUNKS | {"shards": 4}),
    ("array of several chunks", CHUNKS | {"progress": True}),
    ("memmap", CONSUMER | {"epochs": 2}),
    ("map-style dataset", CONSUMER | {"collate_fn": pair, "progress": True}),
    ("map-style dataset", BATCHES | {"shuffle": True, "num_workers": 2}),
    ("map-style dataset", BATCHES | {"num_workers": 2, "workers": "thread", "augment": same}),
    ("map-style dataset", {"num_workers": 2, "shuffle_buffer": 3, "epochs": 2}),
    ("list", CONSUMER | {"sampler": Generating(), "unbatch": "lists"}),
    ("list of dicts", BATCHES | {"augment_example": same}),
    ("sequence", CONSUMER | {"steps_per_epoch": 7}),
    ("sequence", {"shuffle_buffer": 8}),
    ("iterator in Python", CONSUMER),
    ("iterator in Python", BATCHES),
    ("generator", {"shuffle_buffer": 8}),
    ("generator", BATCHES | {"progress": True, "steps_per_epoch": 9}),
    ("DataLoader of 2 workers", BATCHES | {"unbatch": True, "torch": True, "pad_last": True}),
    ("StatefulDataLoader", {"torch": True, "shuffle_buffer": 3, "epochs": 2}),
    ("stateful", {"shuffle_buffer": 3}),
    ("stateful", BATCHES),
    ("native", BATCHES),
    ("native", BATCHES | {"shards": 2, "pad_last": True}),
    ("nested loader", {"shuffle_buffer": 3}),
    ("nested loader", {"threads": 0}),
    ("nested loader", CONSUMER | {"unbatch": True, "steps_per_epoch": 9}),
]
"""Of each pipeline its source, and the options of its loader: what the machine does not have."""


def name_of(pipeline: tuple[str, dict[str, Any]]) -> str:
    """Return the source and the options, in a line."""
    source, options = pipeline
    shown = (f"{name}={getattr(each, '__name__', each)}" for name, each in options.items())
    return ", ".join([source, *shown])


def loader_of(source: str, options: dict[str, Any]) -> Any:
    """Return a new loader."""

    class Lock(TqdmDefaultWriteLock):
        """A lock like tqdm's, which an interrupt in its Python code may leave held."""

        th_lock, mp_lock = threading.RLock(), None

    tqdm.set_lock(Lock())
    options = {"factor": 2, "with_info": True} | options
    loader = pyecho.torch.EchoLoader if options.pop("torch", False) else pyecho.EchoLoader
    return loader(SOURCES[source](), **options)


def epochs_of(source: str) -> int:
    """Return how many epochs are taken."""
    return 1 if source in ONE_SHOT else 2


@cache
def whole(number: int) -> list[list[Any]]:
    """Return what each epoch of a pipeline yields if nothing interrupts it."""
    source, options = PIPELINES[number]
    with loader_of(source, options) as loader:
        return [list(map(plain, loader)) for _ in range(epochs_of(source))]


def check(number: int, strikes: Callable[[Callable[[], Any]], bool], seed: int) -> None:
    """Take everything that a pipeline yields while calls are interrupted: the same, in order."""
    source, options = PIPELINES[number]
    draw = random.Random(seed)
    expected_epochs = whole(number)
    with ended_by_alarm(LIMIT_SECONDS), loader_of(source, options) as loader:
        for epoch, expected in enumerate(expected_epochs):
            taken = taken_by(lambda: loader, strikes, most=draw.randint(1, 9))
            found = list(map(plain, taken))
            assert found == expected, difference(found, expected, epoch)


def difference(found: list[Any], expected: list[Any], epoch: int) -> str:
    """Say where two epochs differ."""
    pairs = enumerate(itertools.zip_longest(found, expected))
    first = next(number for number, (one, other) in pairs if one != other)
    return f"epoch {epoch}: {len(found)} batches of {len(expected)}, other ones from {first} on"
