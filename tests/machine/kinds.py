"""The registry of sources: one entry for each kind, with what tests need to know about it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from drivers import Iterated, Sized
from resuming import (
    Indexed,
    Stateful,
    StatefulBatches,
    StatefulIterator,
    StatefulIterators,
    StaysAtItsEnd,
    columns,
    cut,
    examples,
)
from torch.utils.data import DataLoader, WeightedRandomSampler

import pyecho


@dataclass(frozen=True)
class Kind:
    """A kind of source of so many examples.

    Attributes
    ----------
    make
        Returns a new source of so many examples, or about as many if they are not the same.
    known
        The number of examples is known before a pass is read.
    one_shot
        It is read once.
    own_state
        It goes on by a state of its own, so a state needs the items.
    cut
        It yields batches, which `unbatch` splits.
    same
        Example k of each pass has the number k. Otherwise the order is the source's.
    jumps
        A pass depends on the number of its epoch alone, so any one may be left out.
    examples_only, batches_only
        A batch size is needed, or none is possible.
    indexed
        Workers can read it.
    survives
        Ctrl-C ends no generator of the user's, as it does one that draws while pyecho seeds it.
    plain_states
        Nothing of NumPy's own is in the source's state.
    rows
        The number of examples of a pass, by that of items and of the pass.
    options
        Further options of its loaders.
    """

    make: Callable[[int], Any]
    known: bool = False
    one_shot: bool = False
    own_state: bool = False
    cut: bool = False
    same: bool = True
    jumps: bool = True
    examples_only: bool = False
    batches_only: bool = False
    indexed: bool = False
    survives: bool = True
    plain_states: bool = True
    rows: Callable[[int, int], int] = lambda items, number: items
    options: dict[str, Any] = field(default_factory=dict)


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


def ragged(items: int) -> list[dict[str, Any]]:
    return [
        {"n": n, "tokens": np.full(n % 4, n), "block": np.full((n % 3, n % 5), n)}
        for n in range(items)
    ]


class Batches(Indexed):
    """A map-style dataset of batches of two rows."""

    def __getitem__(self, index: int) -> Any:
        index = range(self.items)[index]
        return columns(2 * index, 2 * index + 2)


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


def lists(items: int) -> Any:
    """Return a loader of batches of uneven sizes."""
    ends = [0, *range(1, items, 3), items]
    return DataLoader(Rows(items), batch_sampler=[[*range(*each)] for each in pairwise(ends)])


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


WINDOWS = {"picture": [pyecho.ops.RandomCrop(4), pyecho.ops.RandomFlip(0)]}
SIZES = {"known": True, "examples_only": True}
CUT = {"cut": True, "examples_only": True}
ORDERED = {"known": True, "same": False}
SHUFFLE = {"shuffle": True}
OWN = {"own_state": True, "same": False, "jumps": False}
KINDS: dict[str, Kind] = {
    "list": Kind(examples, known=True),
    "array": Kind(np.arange, known=True),
    "arrays": Kind(lambda items: (columns(0, items)["row"], np.arange(items)), known=True),
    "columns": Kind(partial(columns, 0), known=True, examples_only=True, indexed=True),
    "table": Kind(table, known=True, examples_only=True),
    "map-style": Kind(Indexed, known=True, indexed=True),
    "map-style batches": Kind(Batches, indexed=True, rows=lambda items, number: 2 * items, **CUT),
    "shuffled": Kind(Indexed, indexed=True, options=SHUFFLE, **ORDERED),
    "shuffled array": Kind(np.arange, indexed=True, options=SHUFFLE, **ORDERED),
    "sized": Kind(lambda items: Sized(examples(items)), known=True),
    "iterable": Kind(lambda items: Iterated(examples(items))),
    "told of epochs": Kind(lambda items: Told(examples(items)), same=False),
    "iterator": Kind(lambda items: map(np.int64, range(items)), one_shot=True),
    "generator": Kind(generated, one_shot=True),
    "record batches": Kind(lambda items: Stream(table(items)), examples_only=True),
    "ragged": Kind(ragged, options=fields(), **SIZES),
    "padded": Kind(ragged, options=fields(pad=-7), **SIZES),
    "windows": Kind(pictures, known=True, examples_only=True, options={"ops": WINDOWS}),
    "list of batches": Kind(cut, known=True, **CUT),
    "batches": Kind(lambda items: Iterated(cut(items)), **CUT),
    "loader": Kind(partial(dataloader, batch_size=None), **ORDERED),
    "loader of batches": Kind(partial(dataloader, batch_size=3), **ORDERED, **CUT),
    "whole batches": Kind(
        partial(dataloader, batch_size=3),
        batches_only=True,
        rows=lambda items, number: -(-items // 3),
        **ORDERED,
    ),
    "loader of lists": Kind(lists, known=True, **CUT),
    "weighted loader": Kind(weighted, **ORDERED, **CUT),
    "drawing loader": Kind(
        lambda items: DataLoader(Rows(items), batch_size=2, sampler=SamplerReader(items)),
        survives=False,
        **ORDERED,
        **CUT,
    ),
    "seeded loader": Kind(seeded, jumps=False, **ORDERED, **CUT),
    "stateful": Kind(Stateful, **OWN),
    "sized stateful": Kind(SizedStateful, known=True, **OWN),
    "stays at its end": Kind(StaysAtItsEnd, **OWN),
    "states of bytes": Kind(lambda items: Bytes(examples(items)), own_state=True),
    "stateful batches": Kind(StatefulBatches, rows=rows_of_batches, **OWN, **CUT),
    "echoed batches": Kind(
        echoed,
        own_state=True,
        same=False,
        plain_states=False,
        rows=lambda items, number: 2 * items,
        **CUT,
    ),
    "stateful iterators": Kind(lambda items: StatefulIterators(examples(items)), own_state=True),
    "stateful iterator": Kind(
        lambda items: StatefulIterator(examples(items)), own_state=True, one_shot=True
    ),
}
"""By name. What joins here joins all tests of states."""
if find_spec("torchdata") is not None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    # In order: of one that shuffles, torchdata restores the epoch only in which it was.
    KINDS["torchdata loader"] = Kind(
        lambda items: StatefulDataLoader(examples(items), batch_size=None, collate_fn=unchanged),
        known=True,
        own_state=True,
        jumps=False,
    )


def draws_in(batch: Any) -> list[list[int]] | None:
    """Return the places in their pictures of the pixels of a batch."""
    if not (isinstance(batch, dict) and "picture" in batch):
        return None
    return (np.asarray(batch["picture"]) % 100).tolist()


def numbers_in(value: Any) -> list[int]:
    """Return the numbers of the examples of a batch, or of one; all leaves must tell the same."""
    if isinstance(value, list):  # of examples
        return [number for each in value for number in numbers_in(each)]
    if isinstance(value, tuple):
        value = {"row": value[0], "n": value[1]}
    elif not isinstance(value, dict):
        value = {"n": value}
    told = [list(tells(value[name])) for name, tells in _TELLS.items() if name in value]
    assert all(each == told[0] for each in told), value
    if "tokens" in value:
        for row, number in enumerate(told[0]):
            assert _row(value["tokens"], row).tolist() == [number] * (number % 4)
            block = _row(value["block"], row)
            assert block.shape == (number % 3, number % 5)
            assert (block == number).all()
    return told[0]


def _row(leaf: Any, row: int) -> Any:
    if isinstance(leaf, pyecho.Padded):
        length = int(leaf.lengths[row])
        assert (leaf.values[row, length:] == -7).all()
        return leaf.values[row, :length]
    return leaf.unbind()[row] if isinstance(leaf, torch.Tensor) else leaf.row(row)


def _of_rows(leaf: Any) -> Iterator[int]:
    for row in np.asarray(leaf).reshape(-1, 5).tolist():
        assert row == row[:1] * 5
        yield row[0]


def _of_names(leaf: Any) -> Iterator[int]:
    for name in [leaf] if isinstance(leaf, str) else leaf:
        yield int(name.removeprefix("item "))


_TELLS: dict[str, Callable[[Any], Any]] = {
    "row": _of_rows,
    "name": _of_names,
    "picture": lambda leaf: (np.asarray(leaf)[:, 0] // 100).tolist(),
    "n": lambda leaf: np.atleast_1d(leaf).tolist(),
}
