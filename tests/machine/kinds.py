"""The registry of sources: one entry for each kind, with what tests need to know about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import polars
import sources
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
from torch.utils.data import DataLoader

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


WINDOWS = {"picture": [pyecho.ops.RandomCrop(4), pyecho.ops.RandomFlip(0)]}
SIZES = {"known": True, "examples_only": True}
NO_COLLATE = {"copy": False}
CUT = {"cut": True, "examples_only": True}
ORDERED = {"known": True, "same": False}
SHUFFLE = {"shuffle": True}
OWN = {"own_state": True, "same": False, "jumps": False}
KINDS: dict[str, Kind] = {
    "list": Kind(examples, known=True),
    "array": Kind(np.arange, known=True),
    "arrays": Kind(lambda items: (columns(0, items)["row"], np.arange(items)), known=True),
    "columns": Kind(partial(columns, 0), known=True, examples_only=True, indexed=True),
    "table": Kind(sources.table, known=True, examples_only=True),
    "map-style": Kind(Indexed, known=True, indexed=True),
    "map-style batches": Kind(
        sources.Batches, indexed=True, rows=lambda items, number: 2 * items, **CUT
    ),
    "lists of examples": Kind(
        sources.Lists, indexed=True, rows=sources.rows_of_lists, options={"unbatch": "lists"}
    ),
    "shuffled": Kind(Indexed, indexed=True, options=SHUFFLE, **ORDERED),
    "shuffled array": Kind(np.arange, indexed=True, options=SHUFFLE, **ORDERED),
    "sized": Kind(lambda items: Sized(examples(items)), known=True),
    "iterable": Kind(lambda items: Iterated(examples(items))),
    "told of epochs": Kind(lambda items: sources.Told(examples(items)), same=False),
    "iterator": Kind(lambda items: map(np.int64, range(items)), one_shot=True),
    "generator": Kind(sources.generated, one_shot=True),
    "frame": Kind(
        lambda items: polars.DataFrame(sources.table(items)), known=True, examples_only=True
    ),
    "query": Kind(sources.Query, examples_only=True),
    "reader": Kind(
        lambda items: sources.table(items).to_reader(), one_shot=True, examples_only=True
    ),
    "record batches": Kind(lambda items: sources.Stream(sources.table(items)), examples_only=True),
    "whole record batches": Kind(
        lambda items: sources.Stream(sources.table(items)),
        same=False,
        batches_only=True,
        plain_states=False,  # texts lie in arrays of objects
        rows=lambda items, number: items // 4 * 2 + min(items % 4, 2),
    ),
    "list of record batches": Kind(
        lambda items: sources.table(items).to_batches(max_chunksize=3), known=True, **CUT
    ),
    "native": Kind(sources.Native, own_state=True, options=NO_COLLATE, **SIZES),
    "ragged": Kind(sources.ragged, indexed=True, options=sources.fields(), **SIZES),
    "padded": Kind(sources.ragged, indexed=True, options=sources.fields(pad=-7), **SIZES),
    "windows": Kind(sources.pictures, indexed=True, options={"ops": WINDOWS}, **SIZES),
    "list of batches": Kind(cut, known=True, **CUT),
    "batches": Kind(lambda items: Iterated(cut(items)), **CUT),
    "batches with lists": Kind(lambda items: Iterated(sources.lists_in(items)), **CUT),
    "loader": Kind(partial(sources.dataloader, batch_size=None), **ORDERED),
    "loader of batches": Kind(partial(sources.dataloader, batch_size=3), **ORDERED, **CUT),
    "whole batches": Kind(
        partial(sources.dataloader, batch_size=3),
        batches_only=True,
        rows=lambda items, number: -(-items // 3),
        **ORDERED,
    ),
    "loader of lists": Kind(sources.lists, known=True, **CUT),
    "weighted loader": Kind(sources.weighted, **ORDERED, **CUT),
    "drawing loader": Kind(
        lambda items: DataLoader(
            sources.Rows(items), batch_size=2, sampler=sources.SamplerReader(items)
        ),
        survives=False,
        **ORDERED,
        **CUT,
    ),
    "curriculum": Kind(
        lambda items: DataLoader(
            sources.Rows(items), batch_size=2, sampler=sources.Curriculum(items)
        ),
        **ORDERED,
        **CUT,
    ),
    "seeded loader": Kind(sources.seeded, jumps=False, **ORDERED, **CUT),
    "stateful": Kind(Stateful, **OWN),
    "sized stateful": Kind(sources.SizedStateful, known=True, **OWN),
    "stays at its end": Kind(StaysAtItsEnd, **OWN),
    "states of bytes": Kind(lambda items: sources.Bytes(examples(items)), own_state=True),
    "stateful batches": Kind(StatefulBatches, rows=sources.rows_of_batches, **OWN, **CUT),
    "echoed batches": Kind(
        sources.echoed,
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
        lambda items: StatefulDataLoader(
            examples(items), batch_size=None, collate_fn=sources.unchanged
        ),
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
    "list": lambda leaf: [int(row[0]) for row in leaf],
    "row": _of_rows,
    "name": _of_names,
    "picture": lambda leaf: (np.asarray(leaf)[:, 0] // 100).tolist(),
    "n": lambda leaf: np.atleast_1d(leaf).tolist(),
}
