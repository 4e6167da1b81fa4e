"""Pipelines of every kind of source and way on, whose output is the same in every run."""

from __future__ import annotations

import itertools
import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from interrupts import ended_by_alarm, taken_by
from members import Unsized
from native import Numbers
from resuming import Indexed, Stateful, StatefulIterators, plain
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


def batches() -> list[Any]:
    return [{"x": ROWS[at : at + 7], "y": np.arange(ITEMS)[at : at + 7]} for at in range(0, 40, 7)]


def nested() -> Any:
    return pyecho.EchoLoader(range(ITEMS), 2, batch_size=4, shuffle_buffer=8, seed=5)


SOURCES: dict[str, Callable[[], Any]] = {
    "list": lambda: list(range(ITEMS)),
    "list of dicts": lambda: [{"x": row, "y": number} for number, row in enumerate(ROWS)],
    "list of dicts of tensors": lambda: [{"x": row} for row in torch.from_numpy(ROWS)],
    "list of batches": batches,
    "tuple": lambda: tuple(range(ITEMS)),
    "range": lambda: range(ITEMS),
    "array": lambda: ROWS,
    "array of several chunks": lambda: np.arange(200_000, dtype=np.int32),
    "tensor": lambda: torch.from_numpy(ROWS),
    "memmap": memmap,
    "tuple of arrays": lambda: (ROWS, np.arange(ITEMS)),
    "dict of columns": lambda: {"x": ROWS, "y": np.arange(ITEMS)},
    "Arrow table": lambda: pa.table({"x": range(ITEMS), "name": list(map(str, range(ITEMS)))}),
    "map-style dataset": lambda: Indexed(ITEMS),
    "sequence": Sized,
    "iterable": lambda: Unsized(range(ITEMS)),
    "iterable of batches": lambda: Unsized(batches()),
    "iterator": lambda: iter(range(ITEMS)),
    "iterator in Python": Counting,
    "generator": Generating,
    "DataLoader": lambda: DataLoader(torch.from_numpy(ROWS), batch_size=8),
    "DataLoader of 2 workers": lambda: DataLoader(
        torch.from_numpy(ROWS), batch_size=8, num_workers=2
    ),
    "StatefulDataLoader": lambda: StatefulDataLoader(torch.from_numpy(ROWS), batch_size=8),
    "stateful": lambda: Stateful(ITEMS),
    "stateful iterators": lambda: StatefulIterators(range(ITEMS)),
    "native": lambda: Numbers(ITEMS),
    "nested loader": nested,
}
ONE_SHOT = ("iterator", "iterator in Python")
OWN_STATE = ("stateful", "StatefulDataLoader", "nested loader")
WITH_ITEMS = (*OWN_STATE, "stateful iterators", "native")  # whose states must have them


def same(batch: Any, rng: Any) -> Any:
    return batch


def pair(examples: list[Any]) -> list[Any]:
    return [*examples, len(examples)]


BATCHES = {"batch_size": 4, "shuffle_buffer": 8}
CONSUMER = BATCHES | {"threads": 0}
PIPELINES: list[tuple[str, dict[str, Any]]] = [
    ("list", {}),
    ("list", {"batch_size": 4, "collate_fn": pair}),
    ("list", {"shuffle_buffer": 8, "epochs": 2}),
    ("list of dicts", BATCHES),
    ("list of dicts", CONSUMER | {"unique_in_batch": True, "progress": True}),
    ("list of dicts of tensors", {"torch": True}),
    ("list of dicts of tensors", BATCHES | {"torch": True, "augment": same}),
    ("list of batches", CONSUMER | {"unbatch": True}),
    ("tuple", {"threads": 0, "progress": True}),
    ("range", {"shuffle_buffer": 8, "shards": 2}),
    ("array", CONSUMER),
    ("array", CONSUMER | {"pad_last": True, "batch_size": 7}),
    ("array", BATCHES | {"shards": 2, "progress": True}),
    ("array", CONSUMER | {"steps_per_epoch": 7}),
    ("array of several chunks", {"factor": 1, "batch_size": 2000, "threads": 0}),
    ("array of several chunks", {"factor": 1, "batch_size": 2000, "shards": 4}),
    ("array of several chunks", {"factor": 1, "batch_size": 2000, "progress": True}),
    ("tensor", CONSUMER | {"torch": True}),
    ("memmap", CONSUMER | {"epochs": 2}),
    ("tuple of arrays", CONSUMER | {"shards": 4}),
    ("dict of columns", CONSUMER),
    ("Arrow table", CONSUMER),
    ("Arrow table", BATCHES | {"pad_last": True, "batch_size": 7}),
    ("map-style dataset", {"threads": 0}),
    ("map-style dataset", CONSUMER | {"shards": 2, "pad_last": True}),
    ("map-style dataset", BATCHES | {"augment": same, "augment_workers": 2}),
    ("map-style dataset", CONSUMER | {"collate_fn": pair, "progress": True}),
    ("map-style dataset", CONSUMER | {"shuffle": True}),
    ("map-style dataset", BATCHES | {"shuffle": True, "num_workers": 2}),
    ("map-style dataset", BATCHES | {"num_workers": 2, "workers": "thread", "augment": same}),
    ("map-style dataset", {"num_workers": 2, "shuffle_buffer": 3, "epochs": 2}),
    ("array of several chunks", {"factor": 1, "batch_size": 2000, "threads": 0, "shuffle": True}),
    ("list", CONSUMER | {"sampler": Generating(), "unbatch": "lists"}),
    ("list of dicts", BATCHES | {"augment_example": same}),
    ("sequence", CONSUMER | {"steps_per_epoch": 7}),
    ("sequence", {"shuffle_buffer": 8}),
    ("iterable", CONSUMER),
    ("iterable", CONSUMER | {"shards": 1, "steps_per_epoch": 6}),
    ("iterable of batches", CONSUMER | {"unbatch": True, "epochs": 2}),
    ("iterable of batches", BATCHES | {"unbatch": True, "threads": 2}),
    ("iterator", CONSUMER),
    ("iterator", {"shuffle_buffer": 8, "augment": same}),
    ("iterator in Python", CONSUMER),
    ("iterator in Python", BATCHES),
    ("generator", {"shuffle_buffer": 8}),
    ("generator", BATCHES | {"progress": True, "steps_per_epoch": 9}),
    ("DataLoader", BATCHES | {"unbatch": True, "torch": True}),
    ("DataLoader", {"torch": True, "shards": 1}),
    ("DataLoader of 2 workers", BATCHES | {"unbatch": True, "torch": True, "pad_last": True}),
    ("StatefulDataLoader", {"torch": True, "shuffle_buffer": 3, "epochs": 2}),
    ("stateful", {"shuffle_buffer": 3}),
    ("stateful", BATCHES),
    ("stateful iterators", BATCHES),
    ("native", BATCHES),
    ("native", BATCHES | {"shards": 2, "pad_last": True}),
    ("nested loader", {"shuffle_buffer": 3}),
    ("nested loader", {"threads": 0}),
    ("nested loader", CONSUMER | {"unbatch": True, "steps_per_epoch": 9}),
]
"""Of each pipeline its source, and the options of its loader."""
NOT_IN_THE_MACHINE = [
    number
    for number, (source, options) in enumerate(PIPELINES)
    if source in ("array of several chunks", "memmap", "native", "nested loader")
    or options.keys() & {"progress", "num_workers", "sampler", "augment_example"}
]


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
