"""Positions and snapshots: where the consumer of a loader or buffer is, and what a state holds.

A position is a few numbers: the iterations and batches that the consumer has taken, and the lengths
of the passes that were read. The plan is a function of these and of the options, so a run that
begins at a position replays it (csrc/core/plan), and no index in a state could point anywhere. One
value stands for a fresh start, a resume, skipping, and another number of ranks. A snapshot adds the
items that the consumer has not had to their last use. `pyecho.state.check` reads states.

    state = {
        "format", "version", "kind",   # of a loader or a buffer
        "rank", "ranks": int,          # rank None: the state serves every rank
        "options": {...},              # the ones that decide the output
        "epoch": int,                  # the running epoch, else the next one
        "position": None | {           # once the passes that flow into each other have begun
            "epoch",                   # the first of them
            "items", "uses",           # of a pass on one rank, see `pyecho.run.extent`
            "iterations", "batches", "delivered",  # taken from the stage that reads
            "segment",                 # that is planned first; None: the run's beginning
            "passes",                  # [[passes, items of each], ...]; None: as long as the source
            "open_items", "ended",     # known of the next pass; no pass follows
            "decisions",               # of an adaptive factor, also ahead of the consumer
        },
        "unspent": None | {            # items: a column of bytes or references for each leaf
            "numbers", "columns",      # "values", "shapes" of a leaf whose items differ in size
            "checksum", "leaves",      # of example echoing; batch echoing has one column, of items
        },
        "links": {name: [iterations, delivered, [[kind, ...], ...]]},  # taken there, made ahead
        "lists": None | [bool, ...],   # which lists in a batch are columns, once a batch was read
        "held", "held_row",            # read and not put, where the source has a state
        "source": None | {"iterator": bool, "ended": bool, "state": ...},
        "seen": [[epoch, step, [[int, ...], ...]], ...],  # see `pyecho.source.seen`
        "taken": int,                  # a buffer's: examples put so far
        "digest": str,                 # of all the rest; columns of bytes by their checksum
    }
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

import numpy as np

from pyecho._core import CheckpointError
from pyecho.config import Config

VERSION = 3

PAYLOAD = ("unspent", "links", "held", "held_row")
"""Names in a state that are there with the payload only."""

MOST_PASSES, MOST_TOLD = 2**40, 2**61
"""Of passes that are as long as the source, and of their items together."""

BATCH, END, LAST_END = 0, 1, 2
"""Kinds of what a link has made ahead: [BATCH, batch, *info], the end of an iteration, the last."""


class Segment(NamedTuple):
    """The beginning of a segment (csrc/core/plan/segments.hpp), or of the run."""

    passes: int = 0  # that have ended since the run began
    items: int = 0  # of the next one, before the segment
    parts: int = 0  # joints in that
    taken: int = 0  # items since the run began
    alike: bool = True  # all passes were as long as told
    streams: Sequence[tuple[int, int, int]] = ()  # of each: iterations, uses, items with one more


@dataclass(frozen=True, kw_only=True)
class Position:
    """The place in a run of passes to go on from. Native stages and plans read it by name."""

    epoch: int = 0
    items: int | None = None
    uses: int | None = None
    iterations: int = 0
    batches: int = 0
    delivered: int = 0
    min_rows: int = 1  # of the batches that `batches` counts
    ahead: int = 0  # of these, made by links and not taken by the consumer
    segment: Segment = field(default_factory=Segment)
    passes: list[tuple[int, int]] | None = field(default_factory=list)
    open_items: int = 0
    ended: bool = False
    end_is_due: bool = False  # the consumer knew by counting that the last pass is over
    decisions: Any = field(default_factory=lambda: np.empty(0, np.int32))

    @classmethod
    def of_input(cls, native: dict[str, Any]) -> Position:
        """Return what a native stage or plan tells of its input."""
        names = ("passes", "open_items", "ended")
        segment = Segment(*(native["segment"] or ()))
        return cls(segment=segment, **{name: native[name] for name in names})

    @property
    def passes_ended(self) -> int:
        """Passes that have ended since the run began."""
        return self.segment.passes + sum(count for count, _ in self.passes or [])

    @property
    def fed(self) -> int:
        """Items of the input since the segment began, which are numbered from there."""
        items = sum(count * items for count, items in self.passes or [])
        return items + self.open_items - self.segment.items

    def of_length(self, length: int | None, config: Config) -> Position:
        """Return the position in a source of this length, whose passes are as long as that.

        It tells of more input than the position needs; the plan is fed only what it needs. Raises
        `CheckpointError` if passes had another length.
        """
        if self.items is not None and length not in (None, self.items):
            raise CheckpointError(
                f"the source has {length} items, and had {self.items} when the state was taken"
            )
        if self.passes is not None:
            return self
        length = self.items if length is None else length
        if length is None:
            raise CheckpointError(
                "the state was taken of a source that tells its length, and this one does not"
            )
        flows = config.steps_per_epoch is not None
        most = min(MOST_PASSES, MOST_TOLD // length) if length else 1
        passes = most if flows else max(1, (config.epochs or 1) - self.epoch)
        return replace(self, items=length, passes=[(passes, length)], ended=not flows)

    def after(self, passes: int, items: int) -> Position:
        """Return the beginning of what was read after so many passes, and items of the next."""
        left, runs = passes - self.segment.passes, []
        for count, length in self.passes or []:
            over = min(left, count)
            left -= over
            runs += [(1, length - items), (count - over - 1, length)] if count > over else []
            items = 0 if count > over else items
        runs = [run for run in runs if run[0] > 0]
        return Position(passes=runs, open_items=self.open_items - items, ended=self.ended)

    def located(self, numbers: list[int]) -> Iterator[tuple[int, int]]:
        """Yield the pass of each item, counted from 0, and its index there; they are ascending."""
        runs = iter([*(self.passes or []), (1, 2**62)])
        first, begin, (count, length) = self.segment.passes, -self.segment.items, next(runs)
        for number in numbers:
            while number >= begin + count * length:
                first, begin = first + count, begin + count * length
                count, length = next(runs)
            of_pass, index = divmod(number - begin, length)
            yield first + of_pass, index


@dataclass(frozen=True)
class Varied:
    """The column of a leaf whose items differ in size: the bytes of all, and the shape of each."""

    values: Any
    shapes: Any

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.shapes)


@dataclass(frozen=True, kw_only=True)
class Unspent:
    """Items that the consumer has not had to their last use."""

    numbers: Any  # ascending
    order: Any  # where each of them is in the columns
    columns: list[Any]
    leaves: list[str] | None

    def parted(self, ahead: int) -> tuple[Unspent, Unspent]:
        """Return the items before the last `ahead` that were read, and these, counted from 0."""
        count = len(self.numbers) - ahead
        if count < 0:
            raise CheckpointError("the state has fewer items than were read ahead: it is damaged")
        return (
            replace(self, numbers=self.numbers[:count], order=self.order[:count]),
            replace(self, numbers=np.arange(ahead), order=self.order[count:]),
        )


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A position, and the contents of the stages there. Without items they are read again."""

    at: Position
    unspent: Unspent | None = None
    held: list[Any] = field(default_factory=list)
    held_row: int = 0
    links: dict[str, tuple[int, int, list[list[Any]]]] = field(default_factory=dict)

    @property
    def is_fresh(self) -> bool:
        """True if nothing was read or taken."""
        at = self.at
        begun = at.iterations or at.delivered or at.batches or at.open_items or at.ended
        return not begun and at.passes == [] and self.unspent is None and not self.links

    @property
    def taken(self) -> tuple[int, int]:
        """Iterations that the consumer has taken, and batches of the next one."""
        at = (self.at.iterations, self.at.delivered)
        return [at, *(link[:2] for link in self.links.values())][-1]  # the last link is theirs

    @property
    def is_empty(self) -> bool:
        """True if no item and no batch is in it."""
        made = any(link[2] for link in self.links.values())
        return not made and not self.held and not (self.unspent and len(self.unspent.numbers))


_PLAIN = (
    *("batch_size", "unbatch", "unique_in_batch", "drop_last", "pad_last"),
    *("seed", "epochs", "steps_per_epoch", "shards"),
)
OPTIONS = (
    *(*_PLAIN, "factor", "min_uses", "max_age", "fields", "ops"),
    *("shuffle", "sampler", "shuffle_buffer"),
)
"""The names of all options that decide the output."""


def options_of(config: Config) -> dict[str, Any]:
    """Return the values of `OPTIONS`, as far as they are given."""
    options = {name: getattr(config, name) for name in _PLAIN}
    adaptive = config.adaptive
    options |= {"factor": config.most_uses, "min_uses": adaptive.min if adaptive else 0}
    options |= {"max_age": adaptive.max_age if adaptive else None}
    options |= {name: repr(value) for name in ("fields", "ops") if (value := getattr(config, name))}
    if config.shuffle:
        options["shuffle"] = True
    if config.sampler is not None:
        options["sampler"] = True
    return options | {"shuffle_buffer": config.capacity}


def position_of(native: Any, epoch: int, items: int | None, uses: int | None) -> dict[str, Any]:
    """Return the position that a state holds; `native`: what a native stage or plan tells."""
    names = [
        "iterations",
        "batches",
        "delivered",
        "segment",
        "passes",
        "open_items",
        "ended",
        "decisions",
    ]
    return {"epoch": epoch, "items": items, "uses": uses} | {name: native[name] for name in names}


def whole_state(
    config: Config, *, epoch: int, position: dict[str, Any] | None, **more: Any
) -> dict[str, Any]:
    """Return the whole state, with its digest.

    Raises `CheckpointError` if it has none, as nothing with an item that contains itself has.
    """
    from pyecho.state.loaded import digest  # only states need it

    state: dict[str, Any] = {
        "format": "pyecho",
        "version": VERSION,
        "kind": config.kind,
        "rank": config.rank,
        "ranks": config.ranks,
        "options": options_of(config),
        "epoch": epoch,
        "position": position,
        "unspent": None,
        "links": {},
        "lists": None,
        "held": [],
        "held_row": 0,
        "source": None,
        "order": None,
        "seen": [],
        **more,
    }
    return state | {"digest": digest(state)}


def with_ends(items: list[Any], queue: dict[str, Any], iterations: int) -> list[Any]:
    """Put the ends of passes between the items that a stage holds, each used once.

    `queue`: the state of the stage (see `_core.ExampleStage._state`). `iterations`: taken from it.
    """
    passes = queue["passes"]
    ahead = Position.of_input(queue).passes_ended - iterations
    last_first = chain.from_iterable(repeat(length, count) for count, length in reversed(passes))
    index, end = len(items) - queue["open_items"], LAST_END if queue["ended"] else END
    for length in islice(last_first, max(0, ahead)):
        items.insert(index, [end])
        index, end = index - length, END
    return items


def without_items(position: dict[str, Any], config: Config, *, has_order: bool) -> dict[str, Any]:
    """Return the position without the payload, and the rank None if it serves all.

    Where all passes are as long as told, the position is good for a source of this length: on every
    rank, and for other numbers of ranks.
    """
    items, segment = position["items"], Position.of_input(position).segment
    alike = segment.alike and all(each == items for _, each in position["passes"])
    alike = alike and not (segment.streams and config.adaptive)  # whose joints follow from draws
    if items is None or not alike or position["open_items"] > items:
        return {"position": position}
    position |= {"segment": None, "passes": None, "open_items": 0, "ended": False}
    if config.ranks == 1 and config.shards is None:
        return {"position": position}
    position["items"] = None  # of this rank
    is_own = config.adaptive is not None or has_order
    return {"position": position} | ({} if is_own else {"rank": None})
