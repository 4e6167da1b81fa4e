"""Checks of saved states: a state that passes is safe to use.

Nothing in a state is ever called, and a state of any kind is refused in bounded time.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from pyecho import _core
from pyecho._core import CheckpointError, EchoError
from pyecho.config import Config
from pyecho.state.digest import digest, is_named
from pyecho.state.position import (
    BATCH,
    LAST_END,
    VERSION,
    Position,
    Segment,
    Snapshot,
    Unspent,
    Varied,
    options_of,
)

MOST = 2**62  # of anything that is counted
MOST_EPOCHS = 2**63
MOST_RANKS = 2**20
MOST_EMPTY_PASSES = 2**28  # replaying them takes time, and no use ends it

_RAISED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions of functions that a damaged state may cause, besides `CheckpointError`."""


@dataclass(frozen=True)
class SavedState:
    """A state that belongs to these options and is whole; else `CheckpointError`."""

    raw: dict[str, Any]
    epoch: int
    snapshot: Snapshot | None
    """Position of the loader or buffer, with its items; None between two epochs."""
    source: dict[str, Any] | None
    lists: tuple[bool, ...] | None

    @classmethod
    def read(cls, state: Any, config: Config) -> SavedState:
        """Check a state. Uses nothing of it, calls nothing in it.

        It may be that of another rank, or of another number of ranks, if it says so.
        """
        try:
            _check_origin(state, config.kind)
            ranks = _check_options(state, config)
            snapshot, source, lists = state["position"], state["source"], state["lists"]
            if snapshot is not None:
                snapshot = _snapshot_of(state, ranks, config)
            if source is not None:
                _require(set(_dict_of(source)) == {"ended", "iterator", "state"}, "source")
                source = source | {name: _of(bool, source[name]) for name in ("ended", "iterator")}
            if lists is not None:
                lists = tuple(_of(bool, each) for each in _list(lists))
            return cls(state, _count(state["epoch"], MOST_EPOCHS), snapshot, source, lists)
        except EchoError:
            raise
        except _RAISED as error:
            raise CheckpointError(f"this is no whole state of pyecho: {error!r}") from error


def _check_origin(state: Any, kind: str) -> None:
    """Raise `CheckpointError` unless the state is whole, and of this kind."""
    if not is_named(state) or "format" not in state or _of(str, state["format"]) != "pyecho":
        raise CheckpointError(
            f"this {type(state).__name__} is no state of pyecho; pass what state_dict() returned"
        )
    if _count(state["version"]) != VERSION:
        raise CheckpointError(
            f"the state has version {state['version']}, and this pyecho reads {VERSION}"
        )
    if _of(str, state["kind"]) != kind:
        raise CheckpointError(f"the state is not that of a {kind}")
    if _of(str, state["digest"]) != digest(state):
        raise CheckpointError("the state is damaged: its digest is that of another one")


def _check_options(state: dict[str, Any], config: Config) -> int:
    """Raise `CheckpointError` if the options are other ones; return the ranks of that run."""
    options = options_of(config)
    saved = {name: _plain(value) for name, value in _dict_of(state["options"]).items()}
    ranks = _deal(state, saved, config)
    for name in sorted(options.keys() | saved.keys()):
        value = saved.get(name)
        known = _is(value, bool, int, float, str, type(None))
        if not known or name not in options or name not in saved or value != options[name]:
            shown = repr(value) if known else f"a {type(value).__name__}"
            raise CheckpointError(
                f"the state was taken with {name}={shown}, and here it is {options.get(name)!r}; "
                "all options that decide the output must be the same"
            )
    return ranks


def _deal(state: dict[str, Any], saved: dict[str, Any], config: Config) -> int:
    """Return the ranks that the state was taken of, and make its options those of one rank here.

    Raises `CheckpointError` if it serves another rank only, or cannot be dealt to the ranks here.
    """
    wiring, now = config.wiring, config.wiring.ranks
    rank = None if state["rank"] is None else _count(state["rank"], MOST_RANKS)
    before = max(1, _count(state["ranks"], MOST_RANKS))
    if rank is not None and (rank, before) != (wiring.rank, now):
        raise CheckpointError(
            f"the state is that of rank {rank} of {before}, and this is rank {wiring.rank} of "
            f"{now}; save one for each rank, or state_dict(payload=False), which serves all"
        )
    if before == now:
        return before
    if saved["shards"] is None or _count(saved["shards"]) % now:
        raise CheckpointError(
            f"the run has shards={saved['shards']}, which cannot be dealt to {now} ranks; "
            "begin it with a number that all your numbers of ranks divide, such as 12"
        )
    batch, pool = (_count(saved[name] or 0) * before for name in ("batch_size", "shuffle_buffer"))
    if saved["batch_size"] is None or batch % now or pool % now:
        raise CheckpointError(
            f"a global batch of {batch} rows and {pool} places in the pools cannot be dealt to "
            f"{now} ranks equally; only batches of example echoing can be"
        )
    saved |= {"batch_size": batch // now, "shuffle_buffer": pool // now}
    return before


def _snapshot_of(state: dict[str, Any], ranks: int, config: Config) -> Snapshot:
    unspent = state["unspent"]
    delivered_only = config.drop_last and unspent is None
    at = _position_of(state["position"], ranks, config, delivered_only=delivered_only)
    if unspent is not None:
        if at.passes is None:
            raise CheckpointError("the state holds items and not the passes they are of")
        before = 0 if at.segment is None else at.segment[1]
        total = _items_in(at.passes) + at.open_items - before
        unspent = _unspent_of(unspent, total, config)
    return Snapshot(
        at=at,
        unspent=unspent,
        held=_list(state["held"]),
        held_row=_count(state["held_row"]),
        links={name: _link_of(link) for name, link in _dict_of(state["links"]).items()},
    )


def _position_of(position: Any, ranks: int, config: Config, *, delivered_only: bool) -> Position:
    names = ("open_items", "iterations", "batches", "delivered")
    counts = {name: _count(_dict_of(position)[name]) for name in names}
    items, uses = (
        None if position[name] is None else _count(position[name]) for name in ("items", "uses")
    )
    ended, open_items = _of(bool, position["ended"]), counts["open_items"]
    passes, segment = None, _segment_of(position["segment"], config)
    _require(position["passes"] is not None or segment is None, "segment")
    if position["passes"] is not None:
        passes = _passes_of(position["passes"], config)
        total = _items_in(passes) + open_items
        _require(total <= MOST and not (ended and open_items), "passes")
        longest = max([open_items, *(each for _, each in passes)])
        _require(longest <= (MOST if items is None or uses is None else items), "passes")
    _require((uses is not None) == (config.bounded and config.steps_per_epoch is None), "uses")
    if uses is not None:
        uses, rest = divmod(uses * ranks, config.wiring.ranks)
        _require(rest == 0 and uses % config.streams == 0, "uses")
    decisions = _array_of(position["decisions"], np.int32, 1)
    _require(bool(np.all(decisions >= 0)), "decisions")
    return Position(
        epoch=_count(position["epoch"], MOST_EPOCHS),
        items=items,
        uses=uses,
        segment=segment,
        passes=passes,
        ended=ended,
        decisions=decisions,
        min_rows=config.batch_size or 1 if delivered_only else 1,
        **counts,
    )


def _passes_of(passes: Any, config: Config) -> list[tuple[int, int]]:
    found = [(_count(count), _count(items)) for count, items in map(_list, _list(passes))]
    most = MOST if config.steps_per_epoch is not None else max(1, config.epochs or 1)
    _require(sum(count for count, _ in found) <= most, "passes")
    _require(all(count >= 1 for count, _ in found), "passes")
    _require(all(items or count <= MOST_EMPTY_PASSES for count, items in found), "passes")
    return found


def _segment_of(segment: Any, config: Config) -> Segment | None:
    if segment is None:
        return None
    *counts, alike, streams = _list(segment)
    _require(len(counts) == 4 and len(_list(streams)) == config.streams, "segment")
    passes, items, parts, taken = map(_count, counts)
    crossings = [
        (_count(iterations), _count(uses), _count(more))
        for iterations, uses, more in map(_list, _list(streams))
    ]
    return passes, items, parts, taken, _of(bool, alike), crossings


def _items_in(passes: list[tuple[int, int]]) -> int:
    return sum(count * items for count, items in passes)


def _unspent_of(unspent: Any, total: int, config: Config) -> Unspent:
    numbers = _array_of(_dict_of(unspent)["numbers"], np.int64, 1)
    _require(bool(np.all(np.diff(np.sort(numbers), prepend=-1, append=total) > 0)), "items")
    columns, checksum = _list(unspent["columns"]), 0
    for leaf, column in enumerate(columns):
        if type(column) is dict:  # the digest covers it
            values = _array_of(_dict_of(column)["values"], np.uint8, 1)
            columns[leaf] = Varied(values, _array_of(column["shapes"], np.int64, 2))
            _require(bool(np.all(columns[leaf].shapes >= 0)), "shapes")
        elif type(column) is not list:
            columns[leaf] = rows = _array_of(column, np.uint8, 2)
            checksum += _core.checksum_of_column(rows, numbers, leaf)
        _require(len(columns[leaf]) == len(numbers), "columns")
    if config.batch_size is None:
        _require(len(columns) == 1 and type(columns[0]) is list, "columns")
    elif checksum % 2**64 != _count(unspent["checksum"], 2**64 - 1):
        raise CheckpointError("the items of the state are damaged")
    leaves = None
    if config.batch_size is not None:
        leaves = [_of(str, leaf) for leaf in _list(unspent["leaves"])]
    order = np.argsort(numbers)
    return Unspent(numbers=numbers[order], order=order, columns=columns, leaves=leaves)


def _link_of(link: Any) -> tuple[int, int, list[list[Any]]]:
    iterations, delivered, made = _list(link)
    entries = []
    for kind, *batch in map(_list, _list(made)):
        kind = _count(kind, LAST_END)
        _require(len(batch) in ((1, 3) if kind == BATCH else (0,)), "batches")
        info = zip(batch[1:], (np.int64, np.int32), strict=False)
        entries.append([kind, *batch[:1], *(_array_of(*each, 1) for each in info)])
    return _count(iterations), _count(delivered), entries


# ---------------------------------------------------------------- values

Kind = TypeVar("Kind")


def _require(true: bool, what: str) -> None:
    if not true:
        raise CheckpointError(
            f"the state contradicts itself in its {what}: it is damaged; load an earlier one"
        )


def _is(value: Any, *kinds: type) -> bool:
    """Return True if a value is of one of these types itself, without asking it or its class."""
    return any(type(value) is kind for kind in kinds)


_NUMPY: tuple[type, ...] = (np.ndarray, *set(np.sctypeDict.values()))


def _plain(value: Any) -> Any:
    """Return the number or text in a NumPy scalar, or in an array of no axes, as of npz files."""
    if _is(value, *_NUMPY) and value.ndim == 0 and value.dtype.kind in "biufU":
        return value.item()
    return value


def _of(kind: type[Kind], value: Any) -> Kind:
    """Return a value that must be of a type itself, or a NumPy scalar of it."""
    value = _plain(value)
    if type(value) is not kind:
        raise CheckpointError(
            f"the state has a {type(value).__name__} in the place of a {kind.__name__}"
        )
    return value


def _count(value: Any, most: int = MOST) -> int:
    number = _of(int, value)
    if not 0 <= number <= most:
        raise CheckpointError(
            f"the state needs a number of 0 to {most}, and has {number}: it is damaged; load an "
            "earlier one"
        )
    return number


def _dict_of(value: Any) -> dict[str, Any]:
    if not is_named(value):
        raise CheckpointError(f"the state has a {type(value).__name__} in the place of a dict")
    return value


def _list(value: Any) -> list[Any]:
    """Return a copy of a list, or of a tuple, which some files make of lists."""
    if not _is(value, list, tuple):
        raise CheckpointError(f"the state has a {type(value).__name__} in the place of a list")
    return list(value)


def _array_of(value: Any, dtype: Any, axes: int) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and type(value) is torch.Tensor:
        value = value.detach().cpu().numpy()
    if issubclass(type(value), np.ndarray):  # of a mapped file, say
        value = np.ndarray.view(value, np.ndarray)
    if type(value) is not np.ndarray or value.dtype != dtype or value.ndim != axes:
        raise CheckpointError("the state lacks an array of items, or it is of another kind")
    return np.ascontiguousarray(value)
