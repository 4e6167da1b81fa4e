"""Checks of saved states: a state that passes is safe to use.

Nothing in a state is ever called, and a state of any kind is refused in bounded time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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
    Snapshot,
    Unspent,
    options_of,
)

MOST = 2**62  # of anything that is counted
MOST_EPOCHS = 2**64 - 1
MOST_RANKS = 2**20
MOST_EMPTY_PASSES = 2**20  # replaying them takes time, and no use ends it


@dataclass(frozen=True)
class SavedState:
    """A state that belongs to these options and is whole; else `CheckpointError`."""

    raw: dict[str, Any]
    epoch: int
    snapshot: Snapshot | None
    source: dict[str, Any] | None
    lists: tuple[bool, ...] | None

    @classmethod
    def read(cls, state: Any, kind: str, config: Config) -> SavedState:
        """Check a state. Uses nothing of it, calls nothing in it.

        A loader's may be that of another rank, or of another number of ranks, if it says so.
        """
        with _reading():
            found = _Found(state, kind)
            if kind == "loader":
                found.go_on_as(config)
            found.check_options(config)
            source = state["source"]
            if source is not None:
                _require(set(_dict_of(source)) == {"ended", "iterator", "state"}, "a source")
                source = source | {name: _flag(source[name]) for name in ("ended", "iterator")}
            snapshot = found.snapshot(config)
            lists = state["lists"]
            if lists is not None:
                lists = tuple(map(_flag, _list_of(object, lists)))
            return cls(state, _count(state["epoch"], MOST_EPOCHS), snapshot, source, lists)


@contextmanager
def _reading() -> Iterator[None]:
    """Have all that a damaged state makes a function raise be a `CheckpointError`."""
    try:
        yield
    except EchoError:
        raise
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise CheckpointError(f"this is no whole state of pyecho: {error!r}") from error


class _Found:
    """The parts of a state, as they are read."""

    def __init__(self, state: Any, kind: str) -> None:
        if not is_named(state) or not _is_text(state.get("format"), "pyecho"):
            raise CheckpointError("this is no state of pyecho: it is a dict that state_dict() made")
        if _count(state["version"]) != VERSION:
            raise CheckpointError(
                f"the state has version {state['version']}, and this pyecho reads {VERSION}"
            )
        if not _is_text(state["kind"], kind):
            raise CheckpointError(f"the state is not that of a {kind}")
        if not _is_text(state["digest"], digest(state)):
            raise CheckpointError("the state is damaged: its digest is that of another one")
        options = _dict_of(state["options"])
        self._state = state
        self._options = {name: _plain(value) for name, value in options.items()}
        self._before = self._now = 1  # ranks

    def go_on_as(self, config: Config) -> None:
        """Have a state of another rank, or of another number of ranks, be that of this one."""
        state, wiring = self._state, config.wiring
        rank = None if state["rank"] is None else _count(state["rank"], MOST_RANKS)
        before, now = max(1, _count(state["ranks"], MOST_RANKS)), wiring.ranks
        if rank is not None and (rank, before) != (wiring.rank, now):
            raise CheckpointError(
                f"the state is that of rank {rank} of {before}, and this is rank {wiring.rank} of "
                f"{now}; save one for each rank, or state_dict(payload=False), which serves all"
            )
        if before == now:
            return
        self._before, self._now = before, now
        options = self._options
        if options["shards"] is None or _count(options["shards"]) % now:
            raise CheckpointError(
                f"the run has shards={options['shards']}, which cannot be dealt to {now} ranks; "
                "begin it with a number that all your numbers of ranks divide, such as 12"
            )
        names = ("batch_size", "shuffle_buffer")
        batch, pool = (_count(options[name] or 0) * before for name in names)
        if options["batch_size"] is None or batch % now or pool % now:
            raise CheckpointError(
                f"a global batch of {batch} rows and {pool} places in the pools cannot be dealt to "
                f"{now} ranks equally; only batches of example echoing can be"
            )
        options |= {"batch_size": batch // now, "shuffle_buffer": pool // now}

    def check_options(self, config: Config) -> None:
        """Raise `CheckpointError` if they are other ones."""
        options, saved = options_of(config), self._options
        for name in sorted(set(options) | set(saved)):
            value = saved.get(name)
            known = any(type(value) is kind for kind in (bool, int, float, type(None)))
            if not known or name not in options or name not in saved or value != options[name]:
                shown = repr(value) if known else f"a {type(value).__name__}"
                raise CheckpointError(
                    f"the state was taken with {name}={shown}, and here it is "
                    f"{options.get(name)!r}; all options that decide the output must be the same"
                )

    def snapshot(self, config: Config) -> Snapshot | None:
        """Return where the loader or buffer was; None: between two epochs."""
        state, position = self._state, self._state["position"]
        if position is None:
            return None
        unspent = None
        at = self._position(position, config)
        if state["unspent"] is not None:
            if at.passes is None:
                raise CheckpointError("the state holds items and not the passes they are of")
            total = sum(count * items for count, items in at.passes) + at.open_items
            unspent = _unspent_of(state["unspent"], total, config)
        return Snapshot(
            at=at,
            unspent=unspent,
            held=_list_of(object, state["held"]),
            held_row=_count(state["held_row"]),
            links={
                name: _link_of(*_three(link)) for name, link in _dict_of(state["links"]).items()
            },
        )

    def _position(self, position: Any, config: Config) -> Position:
        _dict_of(position)
        counts = {
            name: _count(position[name])
            for name in ("open_items", "iterations", "batches", "delivered")
        }
        ended = _flag(position["ended"])
        items, uses = (
            None if position[name] is None else _count(position[name]) for name in ("items", "uses")
        )
        passes = None
        if position["passes"] is not None:
            passes = _passes_of(position["passes"], config)
            total = sum(count * items for count, items in passes) + counts["open_items"]
            _require(total <= MOST and not (ended and counts["open_items"]), "passes")
            if items is not None:
                most = max([counts["open_items"], *(each for _, each in passes)])
                _require(most <= items or uses is None, "passes")
        _require((uses is not None) == (config.bounded and config.steps_per_epoch is None), "uses")
        if uses is not None:
            _require(uses * self._before % self._now == 0, "uses")
            uses = uses * self._before // self._now
            _require(uses % config.streams == 0, "uses")
        delivered_only = config.drop_last and self._state["unspent"] is None
        return Position(
            epoch=_count(position["epoch"], MOST_EPOCHS),
            items=items,
            uses=uses,
            passes=passes,
            ended=ended,
            decisions=_decisions_of(position["decisions"]),
            min_rows=config.batch_size or 1 if delivered_only else 1,
            **counts,
        )


def _passes_of(passes: Any, config: Config) -> list[tuple[int, int]]:
    found = [(_count(count), _count(items)) for count, items in _list_of(list, _lists(passes))]
    most = MOST if config.steps_per_epoch is not None else max(1, config.epochs or 1)
    _require(sum(count for count, _ in found) <= most, "passes")
    _require(all(count >= 1 for count, _ in found), "passes")
    _require(all(items or count <= MOST_EMPTY_PASSES for count, items in found), "passes")
    return found


def _unspent_of(unspent: Any, total: int, config: Config) -> Unspent:
    numbers = _array_of(_dict_of(unspent)["numbers"], np.int64, 1)
    _require(bool(np.all(np.diff(np.sort(numbers), prepend=-1, append=total) > 0)), "items")
    columns, checksum = _list_of(object, unspent["columns"]), 0
    for leaf, column in enumerate(columns):
        if type(column) is not list:
            columns[leaf] = rows = _array_of(column, np.uint8, 2)
            checksum += _core.checksum_of_column(rows, numbers, leaf)
        _require(len(columns[leaf]) == len(numbers), "columns")
    if config.batch_size is None:
        _require(len(columns) == 1 and type(columns[0]) is list, "columns")
    elif checksum % 2**64 != _count(unspent["checksum"], 2**64 - 1):
        raise CheckpointError("the items of the state are damaged")
    return Unspent(
        numbers=np.sort(numbers),
        order=np.argsort(numbers),
        columns=columns,
        leaves=_texts_of(unspent["leaves"]) if "leaves" in unspent else None,
    )


def _decisions_of(column: Any) -> Any:
    decisions = _array_of(column, np.int32, 1)
    _require(bool(np.all(decisions >= 0)), "decisions")
    return decisions


def _three(link: Any) -> list[Any]:
    found = _list_of(object, link)
    _require(len(found) == 3, "batches")
    return found


def _link_of(iterations: Any, delivered: Any, made: Any) -> tuple[int, int, list[list[Any]]]:
    entries = []
    for entry in _list_of(list, made):
        _require(len(entry) > 0, "batches")
        kind, *batch = entry
        _require(len(batch) in ((1, 3) if _count(kind, LAST_END) == BATCH else (0,)), "batches")
        info = zip(batch[1:], (np.int64, np.int32), strict=False)
        entries.append([_count(kind), *batch[:1], *(_array_of(*each, 1) for each in info)])
    return _count(iterations), _count(delivered), entries


# ---------------------------------------------------------------- values


def _require(true: bool, what: str) -> None:
    if not true:
        raise CheckpointError(f"the state tells of {what} that cannot be")


def _plain(value: Any) -> Any:
    """Return the number or text in a NumPy scalar, or in an array of no axes, as of npz files."""
    kind = type(value)
    if any(kind is each for each in _SCALARS):
        return value.item()
    if kind is np.ndarray and value.ndim == 0 and value.dtype.kind in "biufU":
        return value.item()
    return value


_SCALARS = tuple(kind for kind in set(np.sctypeDict.values()) if np.dtype(kind).kind in "biufU")


def _is_text(value: Any, text: str) -> bool:
    value = _plain(value)
    return type(value) is str and value == text


def _texts_of(value: Any) -> list[str]:
    return _list_of(str, [_plain(each) for each in _list_of(object, value)])


def _flag(value: Any) -> bool:
    [flag] = _list_of(bool, [_plain(value)])
    return bool(flag)


def _dict_of(value: Any) -> dict[str, Any]:
    if not is_named(value):
        raise CheckpointError(f"the state has a {type(value).__name__} in the place of a dict")
    return value


def _lists(value: Any) -> Any:
    """Return lists in the place of tuples, which some files make of them."""
    if type(value) is list or type(value) is tuple:
        return [list(each) if type(each) is tuple else each for each in value]
    return value


def _list_of(kind: type, value: Any) -> list[Any]:
    if type(value) is not list or not all(kind is object or type(each) is kind for each in value):
        raise CheckpointError(f"the state has {type(value).__name__} in the place of a list")
    return list(value)


def _count(value: Any, most: int = MOST) -> int:
    value = _plain(value)
    if type(value) is not int:
        raise CheckpointError(f"the state has a {type(value).__name__} in the place of a number")
    if not 0 <= value <= most:
        raise CheckpointError(f"the state has the number {value}, which cannot be")
    return value


def _array_of(value: Any, dtype: Any, axes: int) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and type(value) is torch.Tensor:
        value = value.detach().cpu().numpy()
    if issubclass(type(value), np.ndarray):  # of a mapped file, say
        value = np.ndarray.view(value, np.ndarray)
    if type(value) is not np.ndarray or value.dtype != dtype or value.ndim != axes:
        raise CheckpointError("the state lacks an array of items, or it is of another kind")
    return np.ascontiguousarray(value)


def snapshot_of(state: Mapping[str, Any], config: Config) -> Snapshot:
    """Return the snapshot in a buffer's state; raises `CheckpointError` if it has no items."""
    snapshot = SavedState.read(state, "buffer", config).snapshot
    if snapshot is None or snapshot.unspent is None:
        raise CheckpointError("the state of a buffer holds its examples, and this one does not")
    return snapshot
