"""The registry of sources: one entry for each kind, with what tests need to know about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
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
    examples_only
        A batch size is needed.
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
    options: dict[str, Any] = field(default_factory=dict)


class Rows(Indexed):
    """A map-style dataset for a DataLoader."""

    def __getitem__(self, index: int) -> int:
        return range(self.items)[index]


def table(items: int) -> Any:
    return pa.table({"n": range(items), "name": [f"item {item}" for item in range(items)]})


def ragged(items: int) -> list[dict[str, Any]]:
    return [{"n": item, "tokens": np.full(item % 4, item)} for item in range(items)]


def dataloader(items: int, **options: Any) -> Any:
    return DataLoader(Rows(items), shuffle=True, **options)


TOKENS = pyecho.Field((None,), "int64", max_bytes=24)
OWN = {"own_state": True, "same": False, "jumps": False}
KINDS: dict[str, Kind] = {
    "list": Kind(examples, known=True),
    "array": Kind(np.arange, known=True),
    "arrays": Kind(lambda items: (columns(0, items)["row"], np.arange(items)), known=True),
    "columns": Kind(partial(columns, 0), known=True, examples_only=True),
    "table": Kind(table, known=True, examples_only=True),
    "map-style": Kind(Indexed, known=True),
    "sized": Kind(lambda items: Sized(examples(items)), known=True),
    "iterable": Kind(lambda items: Iterated(examples(items))),
    "iterator": Kind(lambda items: map(np.int64, range(items)), one_shot=True),
    "ragged": Kind(ragged, known=True, examples_only=True, options={"fields": {"tokens": TOKENS}}),
    "list of batches": Kind(cut, known=True, cut=True, examples_only=True),
    "batches": Kind(lambda items: Iterated(cut(items)), cut=True, examples_only=True),
    "loader": Kind(partial(dataloader, batch_size=None), known=True, same=False),
    "loader of batches": Kind(
        partial(dataloader, batch_size=3), known=True, same=False, cut=True, examples_only=True
    ),
    "stateful": Kind(Stateful, **OWN),
    "stateful batches": Kind(StatefulBatches, cut=True, examples_only=True, **OWN),
    "stateful iterators": Kind(lambda items: StatefulIterators(examples(items)), own_state=True),
    "stateful iterator": Kind(
        lambda items: StatefulIterator(examples(items)), own_state=True, one_shot=True
    ),
}
"""By name. What joins here joins all tests of states."""


def numbers_in(value: Any) -> list[int]:
    """Return the numbers of the examples of a batch, or of one; all leaves must tell the same."""
    if isinstance(value, tuple):
        value = {"row": value[0], "n": value[1]}
    elif not isinstance(value, dict):
        value = {"n": value}
    told = [list(_TELLS[name](leaf)) for name, leaf in value.items() if name != "tokens"]
    if "tokens" in value:
        tokens = value["tokens"]
        rows = tokens.unbind() if isinstance(tokens, torch.Tensor) else map(tokens.row, range(99))
        rows = [row.tolist() for _, row in zip(told[0], rows, strict=False)]
        assert rows == [[number] * (number % 4) for number in told[0]]
    assert all(each == told[0] for each in told), value
    return told[0]


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
    "n": lambda leaf: np.atleast_1d(leaf).tolist(),
}
