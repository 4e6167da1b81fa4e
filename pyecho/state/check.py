"""Checks of saved states: what comes out of here can be used, whatever went in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyecho import _core
from pyecho._core import CheckpointError
from pyecho.config import Config
from pyecho.items.spec import Field, is_tensor
from pyecho.run.ranks import ENDLESS, Extent
from pyecho.state.state import (
    BATCH,
    LAST_END,
    VERSION,
    digest,
    leaves_of_spec,
    options_of,
    taken_only,
)

MOST = 2**62  # of anything that is counted
MOST_EPOCHS = 2**64 - 1
MOST_EMPTY_PASSES = 2**20  # replaying them takes time, and no use ends it

Position = tuple[int, int]
"""Iterations that were taken, and what was taken of the next one."""


@dataclass(frozen=True, kw_only=True)
class Flow:
    """A flow of passes. The native stages read the position from here by name."""

    epoch: int
    items: int | None
    iteration_uses: int
    total_uses: int
    last: int | None
    lengths: list[int] | None
    passes: list[tuple[int, int]]
    open_items: int
    ended: bool
    decisions: Any
    knots: list[tuple[int, int]]
    iterations: int
    batches: int
    delivered: int
    min_rows: int  # of the batches that `batches` counts
    links: dict[str, tuple[int, int, list[list[Any]]]]
    numbers: Any = None  # ascending; None: there is no payload
    order: Any = None  # where each of them is in the columns
    columns: list[Any]
    leaves: list[str] | None
    held: list[Any]
    held_row: int

    @property
    def taken(self) -> Position:
        """Iterations that the consumer has taken, and batches of the next one."""
        # The last link has the least, and the consumer has taken what was taken from there.
        return min([(self.iterations, self.delivered), *(link[:2] for link in self.links.values())])

    @property
    def extent(self) -> Extent:
        """Extent of the passes, as the ranks agreed on it."""
        return Extent(self.items, self.iteration_uses, self.total_uses)

    @property
    def longest(self) -> int | None:
        """Items of a pass on the rank that has most."""
        return self.items if not self.lengths else max(self.lengths)

    @property
    def payload(self) -> bool:
        """True if the state holds the items."""
        return self.numbers is not None

    @property
    def count(self) -> int:
        """How many items the state holds."""
        return 0 if self.numbers is None else len(self.numbers)

    def located(self, numbers: list[int]) -> Iterator[tuple[int, int]]:
        """Yield the pass of each item, counted from 0, and its place there; they are ascending."""
        runs = iter([*self.passes, (1, MOST)])
        first, begin, (count, length) = 0, 0, next(runs)
        for number in numbers:
            while number >= begin + count * length:
                first, begin = first + count, begin + count * length
                count, length = next(runs)
            of_pass, place = divmod(number - begin, length)
            yield first + of_pass, place

    def slots_of(self, numbers: Any, slots: Any, *, adaptive: bool) -> Any:
        """Return the slots of the items in the state, of all that the plan holds.

        Raises `CheckpointError` if they are not those of the plan. An adaptive factor may have
        dropped some ahead of the consumer, which are not used again.
        """
        if not self.payload:
            return slots
        there = np.isin(numbers, self.numbers)
        if np.sum(there) != self.count or not (adaptive or np.all(there)):
            raise CheckpointError(
                "the state contradicts itself: its items are not those of its place"
            )
        return slots[there]

    def arrays(self, fields: list[Field]) -> list[Any]:
        """Return an array or list of all rows for each leaf, if they are such leaves."""
        if (leaves := leaves_of_spec(fields)) != self.leaves:
            raise CheckpointError(
                f"the items of the state have the leaves {self.leaves}, those of this source "
                f"{leaves}"
            )
        _require(len(self.columns) == len(fields), "columns")
        return [_rows_of(*each) for each in zip(self.columns, fields, strict=True)]


@dataclass(frozen=True)
class SavedState:
    """A state that belongs to these options and is whole; else `CheckpointError`."""

    raw: dict[str, Any]
    epoch: int
    flow: Flow | None
    source: Any

    @classmethod
    def read(cls, state: Any, kind: str, config: Config) -> SavedState:
        """Check a state. Uses nothing of it, calls nothing in it."""
        try:
            return cls._read(state, kind, config)
        except CheckpointError:
            raise
        except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise CheckpointError(f"this is no whole state of pyecho: {error!r}") from error

    @classmethod
    def _read(cls, state: Any, kind: str, config: Config) -> SavedState:
        if not isinstance(state, dict) or not _is_text(state.get("format"), "pyecho"):
            raise CheckpointError("this is no state of pyecho: it is a dict that state_dict() made")
        if _count(state["version"]) != VERSION:
            raise CheckpointError(
                f"the state has version {state['version']}, and this pyecho reads {VERSION}"
            )
        if not _is_text(state["kind"], kind):
            raise CheckpointError(f"the state is that of a {state['kind']}, not of a {kind}")
        if kind == "loader" and (state["rank"], state["ranks"]) != (config.rank, config.ranks):
            raise CheckpointError("the state is that of another rank")  # else of_rank() says more
        _check_options(state["options"], config)
        if not _is_text(state["digest"], digest(state)):
            raise CheckpointError("the state is damaged: its digest is that of another one")
        source, flow = state["source"], state["flow"]
        if source is not None and set(_list_of(str, list(source))) != {"iterator", "state"}:
            raise CheckpointError("the state of the source is damaged")
        checked = None if flow is None else _flow_of(flow, config)
        return cls(state, _count(state["epoch"], MOST_EPOCHS), checked, source)


def without_payload(raw: dict[str, Any], flow: Flow) -> dict[str, Any]:
    """Return the flow of a state as it would have been without items; `flow` is what it says."""
    extent = ("epoch", "items", "iteration_uses", "total_uses", "last", "lengths")
    names = (*extent, "passes", "open_items", "ended", "decisions")
    kept = {name: raw[name] for name in names}
    return kept | {"knots": list(map(list, flow.knots))} | taken_only(*flow.taken)


def _check_options(saved: Any, config: Config) -> None:
    options = options_of(config)
    if not isinstance(saved, dict) or set(map(type, saved)) != {str}:
        raise CheckpointError("the state lacks the options of its loader")
    for name in sorted(set(options) | set(saved)):
        value = _plain(saved.get(name))
        known = name in options and isinstance(value, int | float | np.number | None)
        if not known or name not in saved or value != options[name]:
            raise CheckpointError(
                f"the state was taken with {name}={saved.get(name)!r}, and here it is "
                f"{options.get(name)!r}; all options that decide the output must be the same"
            )


def _rows_of(column: Any, field: Field) -> Any:
    if field.by_reference:
        return _list_of(object, column)
    rows = _array_of(column, np.uint8, 2)
    _require(rows.shape[1] == field.dtype.itemsize * math.prod(field.shape), "columns")
    shape = (len(rows), *field.shape)
    return rows.view(field.dtype).reshape(shape) if rows.size else np.empty(shape, field.dtype)


# ---------------------------------------------------------------- the flow


def _flow_of(flow: Any, config: Config) -> Flow:
    _require(isinstance(flow, dict) and isinstance(flow["links"], dict), "passes")
    passes = [(_count(count), _count(items)) for count, items in _list_of(list, flow["passes"])]
    most = MOST if config.steps_per_epoch is not None else max(1, config.epochs or 1)
    names = ("open_items", "iterations", "batches", "delivered", "held_row")
    counts = {name: _count(flow.get(name, 0)) for name in names}
    [ended] = _list_of(bool, [_plain(flow["ended"])])
    total = sum(count * items for count, items in passes) + counts["open_items"]
    _require(total <= MOST and sum(count for count, _ in passes) <= most, "passes")
    _require(all(count >= 1 for count, _ in passes), "passes")
    _require(all(items or count <= MOST_EMPTY_PASSES for count, items in passes), "passes")
    _require(not (ended and counts["open_items"]), "passes")
    if flow["items"] is not None and _plain(flow["total_uses"]) != 0:  # additional uses follow
        most_items = max([counts["open_items"], *(items for _, items in passes)])
        _require(most_items <= _count(flow["items"]), "passes")
    numbers = _array_of(flow["numbers"], np.int64, 1) if "numbers" in flow else None
    links = {name: _link_of(*link) for name, link in flow["links"].items()}
    knots = [(_count(batch), _count(events)) for batch, events in flow.get("knots", [])]
    if config.joint:  # what is decided reaches beyond the consumer
        places = [
            (counts["iterations"], counts["delivered"]),
            *(link[:2] for link in links.values()),
        ]
        iterations, delivered = min(places)
        taken = iterations * (config.steps_per_epoch or 0) + delivered
        _require(bool(knots) and knots[-1][0] > taken, "knots")
    by_number = config.drop_last and numbers is None  # of batches that were delivered
    return Flow(
        epoch=_count(flow["epoch"], MOST_EPOCHS),
        items=None if flow["items"] is None else _count(flow["items"]),
        iteration_uses=_uses_of(flow["iteration_uses"], config),
        total_uses=_uses_of(flow["total_uses"], config),
        last=None if flow["last"] is None else _count(flow["last"]),
        lengths=None if flow["lengths"] is None else list(map(_count, flow["lengths"])),
        passes=passes,
        ended=ended,
        decisions=_decisions_of(flow["decisions"]),
        knots=knots,
        min_rows=config.batch_size or 1 if by_number else 1,
        links=links,
        numbers=None if numbers is None else np.sort(numbers),
        order=None if numbers is None else np.argsort(numbers),
        columns=[] if numbers is None else _columns_of(flow, numbers, total, config),
        leaves=_list_of(str, flow["leaves"]) if "leaves" in flow else None,
        held=_list_of(object, flow.get("held", [])),
        **counts,
    )


def _uses_of(value: Any, config: Config) -> int:
    if _plain(value) == ENDLESS:
        return ENDLESS
    uses = _count(value)
    _require(uses % config.streams == 0, "uses")
    return uses


def _decisions_of(column: Any) -> Any:
    decisions = _array_of(column, np.int32, 1)
    _require(bool(np.all(decisions >= 0)), "decisions")
    return decisions


def _columns_of(flow: Any, numbers: Any, total: int, config: Config) -> list[Any]:
    _require(bool(np.all(np.diff(np.sort(numbers), prepend=-1, append=total) > 0)), "items")
    columns, checksum = _list_of(object, flow["columns"]), 0
    for leaf, column in enumerate(columns):
        if not isinstance(column, list):
            columns[leaf] = rows = _array_of(column, np.uint8, 2)
            checksum += _core.checksum_of_column(rows, numbers, leaf)
        _require(len(columns[leaf]) == len(numbers), "columns")
    if config.batch_size is None:
        _require(len(columns) == 1 and isinstance(columns[0], list), "columns")
    elif checksum % 2**64 != _count(flow["checksum"], 2**64 - 1):
        raise CheckpointError("the items of the state are damaged")
    return columns


def _link_of(iterations: Any, delivered: Any, made: Any) -> tuple[int, int, list[list[Any]]]:
    for entry in _list_of(list, made):
        kind, *batch = entry
        _require(len(batch) in ((1, 3) if _count(kind, LAST_END) == BATCH else (0,)), "batches")
    info = (np.int64, np.int32)
    entries = [
        [*entry[:2], *(_array_of(*each, 1) for each in zip(entry[2:], info, strict=False))]
        for entry in made
    ]
    return _count(iterations), _count(delivered), entries


def _require(true: bool, what: str) -> None:
    if not true:
        raise CheckpointError(f"the state tells of {what} that cannot be")


def _plain(value: Any) -> Any:
    """Return the number or text in an array of no axes, which is what npz files make of them."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biufU":
        return value.item()
    return value


def _is_text(value: Any, text: str) -> bool:
    value = _plain(value)
    return isinstance(value, str) and value == text  # never calls what a state holds


def _list_of(kind: type, value: Any) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        raise CheckpointError(f"the state has {type(value).__name__} in the place of a list")
    return list(value)


def _count(value: Any, most: int = MOST) -> int:
    value = _plain(value)
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise CheckpointError(f"the state has {value!r} in the place of a number")
    if not 0 <= value <= most:
        raise CheckpointError(f"the state has the number {value}, which cannot be")
    return int(value)


def _array_of(value: Any, dtype: Any, axes: int) -> Any:
    if is_tensor(value):
        value = value.detach().cpu().numpy()
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.ndim != axes:
        raise CheckpointError("the state lacks an array of items, or it is of another kind")
    return np.ascontiguousarray(value)
