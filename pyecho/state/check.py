"""Checks of saved states: a state that passes is safe to use.

Nothing in a state is ever called, and a state of any kind is refused in bounded time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyecho import _core
from pyecho._core import CheckpointError
from pyecho.checked import MOST_COUNTED
from pyecho.config import Config
from pyecho.source.seen import MOST_LEAVES
from pyecho.state.loaded import Loaded, digest, is_named, is_scalar, plain, shown
from pyecho.state.plain import decoded
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

MOST_EPOCHS = 2**63
MOST_RANKS = 2**20
MOST_LINKS = 16  # no loader has more than four
MOST_EMPTY_PASSES = 2**20  # replaying them takes time and memory, and no use ends it


@dataclass(frozen=True)
class SavedState:
    """A state that belongs to these options and is whole; else `CheckpointError`."""

    raw: dict[str, Any]
    epoch: int
    snapshot: Snapshot | None
    """Position of the loader or buffer, with its items; None between two epochs."""
    source: dict[str, Any] | None
    lists: tuple[bool, ...] | None
    order: dict[str, Any] | None
    """See `pyecho.source.Source.order`."""
    seen: list[list[Any]]
    """See `pyecho.source.seen`."""

    @classmethod
    def read(cls, state: Any, config: Config) -> SavedState:
        """Check a state. Uses nothing of it, calls nothing in it.

        It may be that of another rank, or of another number of ranks, if it says so.
        """
        loaded = Loaded(state)
        _check_origin(loaded, config.kind)
        ranks = _check_options(loaded, config)
        snapshot, source, lists = (loaded[name] for name in ("position", "source", "lists"))
        found = None
        if source.value is not None:
            source["state"]
            flags = {name: source[name].of(bool) for name in ("ended", "iterator")}
            found = source.value | flags
        return cls(
            raw=state,
            epoch=loaded["epoch"].count(MOST_EPOCHS),
            snapshot=None if snapshot.value is None else _snapshot_of(loaded, ranks, config),
            source=found,
            lists=None if lists.value is None else tuple(each.of(bool) for each in lists.each()),
            order=_order_of(loaded["order"]),
            seen=_seen_of(loaded["seen"]),
        )


def _check_origin(state: Loaded, kind: str) -> None:
    """Raise `CheckpointError` unless the state is whole, and of this kind."""
    form = plain(state.value.get("format")) if is_named(state.value) else None
    if type(form) is not str or form != "pyecho":
        raise CheckpointError(
            f"this {type(state.value).__name__} is no state of pyecho; pass what state_dict() "
            "returned"
        )
    if (version := state["version"].count()) != VERSION:
        raise CheckpointError(f"the state has version {version}, and this pyecho reads {VERSION}")
    if state["kind"].of(str) != kind:
        raise CheckpointError(f"the state is not that of a {kind}")
    if state["digest"].of(str) != digest(state.value):
        raise CheckpointError("the state is damaged: its digest is that of another one")


def _check_options(state: Loaded, config: Config) -> int:
    """Raise `CheckpointError` if the options are other ones; return the ranks of that run."""
    options = options_of(config)
    saved = {name: plain(each.value) for name, each in state["options"].named().items()}
    ranks = _deal(state, saved, config)
    for name in sorted(options.keys() | saved.keys()):
        value = saved.get(name)
        known = name in options and name in saved and is_scalar(value)
        if not known or value != options[name]:
            raise CheckpointError(
                f"the state was taken with {name:.40}={shown(value)}, and here it is "
                f"{options.get(name)!r}; all options that decide the output must be the same"
            )
    return ranks


def _deal(state: Loaded, saved: dict[str, Any], config: Config) -> int:
    """Return the ranks that the state was taken of, and make its options those of one rank here.

    Raises `CheckpointError` if it serves another rank only, or cannot be dealt to the ranks here.
    """
    now = config.ranks
    rank = state["rank"].count_or_none(MOST_RANKS)
    before = max(1, state["ranks"].count(MOST_RANKS))
    if rank is not None and (rank, before) != (config.rank, now):
        raise CheckpointError(
            f"the state is that of rank {rank} of {before}, and this is rank {config.rank} of "
            f"{now}: save one for each rank, and load that of rank {config.rank}; "
            "state_dict(payload=False) serves all only if passes have one length, the factor is a "
            "number, and the source has no state or order of its own"
        )
    if before == now:
        return before
    names = ("shards", "batch_size", "shuffle_buffer")
    shards, rows, places = (state["options"][name].count_or_none() for name in names)
    if shards is None or shards % now:
        raise CheckpointError(
            f"the run has shards={shards}, which cannot be dealt to {now} ranks; "
            "begin it with a number that all your numbers of ranks divide, such as 12"
        )
    batch, pool = (rows or 0) * before, (places or 0) * before
    if rows is None or batch % now or pool % now:
        raise CheckpointError(
            f"a global batch of {batch} rows and {pool} places in the pools cannot be dealt to "
            f"{now} ranks equally; only batches of example echoing can be"
        )
    saved |= {"batch_size": batch // now, "shuffle_buffer": pool // now}
    return before


def _snapshot_of(state: Loaded, ranks: int, config: Config) -> Snapshot:
    unspent = None
    delivered_only = config.drop_last and state["unspent"].value is None
    at = _position_of(state["position"], ranks, config, delivered_only=delivered_only)
    if state["unspent"].value is not None:
        if at.passes is None:
            raise CheckpointError("the state holds items and not the passes they are of")
        unspent = _unspent_of(state["unspent"], at.fed, config)
    found = state["links"].named()
    _require(len(found) <= MOST_LINKS, "links")
    links = {name: _link_of(link) for name, link in found.items()}
    # Only the last end may have been counted before it came.
    _require(all(taken <= at.iterations + 1 for taken, *_ in links.values()), "links")
    ahead = sum(entry[0] == BATCH for *_, made in links.values() for entry in made)
    return Snapshot(
        at=replace(at, ahead=ahead),
        unspent=unspent,
        held=list(map(decoded, state["held"].each())),
        held_row=state["held_row"].count(),
        links=links,
    )


def _position_of(position: Loaded, ranks: int, config: Config, *, delivered_only: bool) -> Position:
    names = ("open_items", "iterations", "batches", "delivered")
    counts = {name: position[name].count() for name in names}
    items, uses = (position[name].count_or_none() for name in ("items", "uses"))
    ended, open_items = position["ended"].of(bool), counts["open_items"]
    passes, segment = None, _segment_of(position["segment"], config)
    end_is_due = False
    _require(position["passes"].value is not None or segment == Segment(), "segment")
    if position["passes"].value is not None:
        passes = _passes_of(position["passes"], config)
        total = sum(count * items for count, items in passes) + open_items
        _require(total <= MOST_COUNTED and not (ended and open_items), "passes")
        longest = max([open_items, *(each for _, each in passes)])
        _require(longest <= (MOST_COUNTED if items is None or uses is None else items), "passes")
        over = sum(count for count, _ in passes) + segment.passes
        if config.steps_per_epoch is None and open_items and counts["iterations"] == over + 1:
            passes, counts["open_items"], end_is_due = [*passes, (1, open_items)], 0, True
    _require((uses is not None) == (config.bounded and config.steps_per_epoch is None), "uses")
    if uses is not None:
        uses, rest = divmod(uses * ranks, config.ranks)
        _require(rest == 0 and uses % config.streams == 0, "uses")
    decisions = position["decisions"].array(np.int32, 1)
    _require(bool(np.all(decisions >= 0)), "decisions")
    return Position(
        epoch=position["epoch"].count(MOST_EPOCHS),
        items=items,
        uses=uses,
        segment=segment,
        passes=passes,
        ended=ended,
        end_is_due=end_is_due,
        decisions=decisions,
        min_rows=config.batch_size or 1 if delivered_only else 1,
        **counts,
    )


def _passes_of(passes: Loaded, config: Config) -> list[tuple[int, int]]:
    found = []
    for each in passes.each():
        count, items = (part.count() for part in each.each(2))
        found.append((count, items))
    most = MOST_COUNTED if config.steps_per_epoch is not None else max(1, config.epochs or 1)
    _require(sum(count for count, _ in found) <= most, "passes")
    _require(all(count >= 1 for count, _ in found), "passes")
    _require(all(items or count <= MOST_EMPTY_PASSES for count, items in found), "passes")
    return found


def _segment_of(segment: Loaded, config: Config) -> Segment:
    if segment.value is None:
        return Segment()
    *counts, alike, streams = segment.each(len(Segment._fields))
    passes, items, parts, taken = (each.count() for each in counts)
    crossings = []
    for stream in streams.each(config.streams):
        iterations, uses, more = (each.count() for each in stream.each(3))
        crossings.append((iterations, uses, more))
    return Segment(passes, items, parts, taken, alike.of(bool), crossings)


def _unspent_of(unspent: Loaded, total: int, config: Config) -> Unspent:
    numbers = unspent["numbers"].array(np.int64, 1)
    _require(bool(np.all(np.diff(np.sort(numbers), prepend=-1, append=total) > 0)), "items")
    columns: list[Any] = []
    checksum = 0
    for leaf, column in enumerate(unspent["columns"].each()):
        if type(column.value) is dict:  # the digest covers it
            shapes = column["shapes"].array(np.int64, 2)
            _require(bool(np.all(shapes >= 0)), "shapes")
            columns.append(Varied(column["values"].array(np.uint8, 1), shapes))
        elif type(column.value) is list:
            columns.append(decoded(column))
        else:
            columns.append(column.array(np.uint8, 2))
            checksum += _core.checksum_of_column(columns[leaf], numbers, leaf)
        _require(len(columns[leaf]) == len(numbers), "columns")
    leaves = None
    if config.batch_size is None:
        _require(len(columns) == 1 and type(columns[0]) is list, "columns")
    else:
        if checksum % 2**64 != unspent["checksum"].count(2**64 - 1):
            raise CheckpointError("the items of the state are damaged")
        leaves = [leaf.of(str) for leaf in unspent["leaves"].each()]
    order = np.argsort(numbers)
    return Unspent(numbers=numbers[order], order=order, columns=columns, leaves=leaves)


def _link_of(link: Loaded) -> tuple[int, int, list[list[Any]]]:
    iterations, delivered, made = link.each(3)
    entries = []
    for entry in made.each():
        kind, *batch = entry.each(1, 2, 4)
        entries.append([kind.count(LAST_END), *map(decoded, batch[:1])])
        _require(len(batch) in ((1, 3) if entries[-1][0] == BATCH else (0,)), "batches")
        info = zip(batch[1:], (np.int64, np.int32), strict=False)
        entries[-1] += [each.array(dtype, 1) for each, dtype in info]
    return iterations.count(), delivered.count(), entries


def _order_of(order: Loaded) -> dict[str, Any] | None:
    if order.value is None:
        return None
    begins = []
    for epoch, states in (each.each(2) for each in order["begins"].each()):
        arrays = [each.array(np.uint8, 1) for each in states.each()]
        begins.append([epoch.count(MOST_EPOCHS), arrays])
    base, counted = order["base"].count_or_none(2**63), order["counted"].of(bool)
    return {"base": base, "begins": begins, "counted": counted}


def _seen_of(seen: Loaded) -> list[list[Any]]:
    found = []
    for epoch, step, rows in (each.each(3) for each in seen.each()):
        samples = [[each.count() for each in row.each(MOST_LEAVES)] for row in rows.each()]
        _require(step.count() > 0 and len(samples) > 0, "samples")
        found.append([epoch.count(MOST_EPOCHS), step.count(), samples])
    return found


def _require(true: bool, what: str) -> None:
    if not true:
        raise CheckpointError(
            f"the state contradicts itself in its {what}: it is damaged; load an earlier one"
        )
