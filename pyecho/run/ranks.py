"""Ranks compare options, epochs and lengths once, when an epoch begins, and settle its extent.

A run is made of V streams (`shards`), V / R of them on each of R ranks. Rank r reads items r,
r + R, ... of the whole source and deals them to its streams in turn; rows r, r + R, ... of a global
batch are its own. When an epoch begins, the ranks gather one message of fixed width each, and every
stream gets as many uses as the longest one needs. A stream with fewer items uses each of them more
often. Only the consumer's thread takes part, and nothing else is said before the next epoch.
"""

from __future__ import annotations

import operator
from dataclasses import astuple, dataclass
from typing import Any, Protocol

import numpy as np

from pyecho._core import CheckpointError, ConfigError, EchoError
from pyecho.config import Config
from pyecho.items.nest import leaves_of
from pyecho.items.spec import is_tensor
from pyecho.run.extent import Extent, check_steps, fits
from pyecho.run.reading import Reading
from pyecho.source import Source
from pyecho.state.position import OPTIONS, options_of
from pyecho.warn import warn

MOST_UNEVEN, MOST_UNEVEN_USES = 8, 2**24
"""How many times more uses a rank may have than by the factor, in a run of more uses than this."""

LOADER_MADE, EPOCH_BEGINS = 1, 2  # kinds of messages
READY, EMPTY, FAILED = 0, 1, 2  # a source begins with an item, without one, with an exception


class Group(Protocol):
    """Processes that run the same program. All of them call `gather` in the same order."""

    rank: int
    size: int

    def gather(self, values: list[int]) -> list[list[int]]:
        """Return the values of all ranks, which pass equally many 64-bit numbers."""


@dataclass(frozen=True)
class Message:
    """Tells the other ranks of this one, by numbers only."""

    kind: int
    options: tuple[int, ...]  # a number for the value of each of OPTIONS
    epoch: int = 0
    iterations: int = 0
    batches: int = 0
    length: int = -1  # -1: unknown
    beginning: int = READY
    first: int = 0  # a number for the content of the first item; 0: it cannot be told


def check_rank(group: Any) -> None:
    """Raise `ConfigError` unless a group has a rank, and its rank is one of `size`."""
    rank, size = group.rank, group.size
    whole = all(isinstance(number, int | np.integer) for number in (rank, size))
    if not whole or not 0 <= rank < size:
        raise ConfigError(
            f"group needs a size of at least 1 and a rank below it, got rank {rank!r} of {size!r}"
        )


def exchange(group: Group | None, message: Message) -> list[Message]:
    """Return the messages of all ranks; collective with a group, else its own.

    Raises `ConfigError` if the group cannot gather, and on every rank if two ranks differ in what
    all must agree on.
    """
    if group is None:
        return [message]
    kind, options, *rest = astuple(message)
    values = [kind, *options, *rest]
    found = group.gather(values)
    try:
        lists = [[operator.index(value) for value in each] for each in found]
        if len(lists) != group.size or any(len(each) != len(values) for each in lists):
            raise TypeError("other numbers of values")
    except TypeError as error:
        raise ConfigError(
            f"gather() of the group ({type(group).__name__}) must return {group.size} lists, one "
            f"for each rank, of {len(values)} integers, got {found!r:.200}"
        ) from error
    end = 1 + len(options)
    messages = [Message(each[0], tuple(each[1:end]), *each[end:]) for each in lists]
    for rank, other in enumerate(messages):
        for name, text in _AGREED.items():
            ours, theirs = (getattr(each, name) for each in (messages[0], other))
            if ours != theirs:
                if name == "options":
                    pairs = zip(OPTIONS, ours, theirs, strict=True)
                    ours = ", ".join(option for option, our, their in pairs if our != their)
                raise ConfigError(f"the loaders of ranks 0 and {rank} {text.format(ours, theirs)}")
    return messages


_AGREED = {
    "kind": "are at different points of the program, one where a loader is made and one where an "
    "epoch begins; make and iterate the loaders of all ranks in one order",
    "options": "have other values of {}; all options that decide the output must be the same on "
    "every rank, the seed included",
    "epoch": "begin the epochs {} and {}; call set_epoch() on every rank, and load a state on all "
    "of them or none",
    "iterations": "go on after {} and {} iterations; load the states of one moment on all ranks, "
    "or none",
    "batches": "go on after {} and {} batches; load the states of one moment on all ranks, or none",
}


def lengths_of(config: Config, source: Source, messages: list[Message]) -> list[int]:
    """Return the lengths of all ranks, or raise `ConfigError` where one is unknown."""
    for rank, message in enumerate(messages):
        if message.length < 0:
            where, why = f" of rank {rank}", "does not tell"
            if len(messages) == 1:
                where, why = f" ({type(source.object).__name__})", source.unsure or why
            what = "examples" if config.unbatch else "items"
            raise ConfigError(
                f"{config.bounded_by} needs to know how many {what} a pass has, and the source"
                f"{where} {why}; pass steps_per_epoch=, or a source with a length"
            )
    return [message.length for message in messages]


def agreed_length(config: Config, source: Source, group: Group | None) -> int | None:
    """Return the items of a pass on the rank that has most, where batches depend on it.

    With a group collective. Raises `ConfigError` where a length that is needed is unknown.
    """
    if not config.bounded:
        return None
    length = source.length()
    message = Message(
        LOADER_MADE, _codes_of(config, group), length=-1 if length is None else length
    )
    messages = exchange(group, message)
    return None if config.steps_per_epoch else max(lengths_of(config, source, messages))


def settle(
    config: Config, source: Source, group: Group | None, reading: Reading, *, epoch: int
) -> Extent:
    """Settle the extent of the epoch that begins; with a group collective. `reading` is open.

    Raises the error of the source, once the other ranks know.
    """
    length, first = reading.length, reading.first
    if not config.bounded:
        return Extent(length, None, length)
    beginning = READY if first or source.native or not reading.saved.is_fresh else EMPTY
    message = Message(
        EPOCH_BEGINS,
        _codes_of(config, group),
        epoch,
        *reading.saved.taken,
        length=-1 if length is None else length,
        beginning=beginning if reading.error is None else FAILED,
        first=_code_of_item(first[0]) if first and group is not None else 0,
    )
    messages = exchange(group, message)
    reading.check()
    beginnings = [each.beginning for each in messages]
    if FAILED in beginnings:
        raise EchoError(
            f"the source of rank {beginnings.index(FAILED)} failed; see the error there"
        )
    if set(beginnings) == {EMPTY}:
        return Extent(length)
    if EMPTY in beginnings:
        raise EchoError(
            f"the source of rank {beginnings.index(EMPTY)} has no item, and each of "
            f"{len(messages)} ranks needs one; give every rank a part of the data, or make the "
            "group without this rank"
        )
    alike = len({(each.first, each.length) for each in messages}) == 1
    if len(messages) > 1 and alike and messages[0].first:
        warn(
            f"the sources ({type(source.object).__name__}) of all {len(messages)} ranks begin with "
            "the same first item: pass each rank its own part, such as a DataLoader with a "
            "DistributedSampler, or rows[rank::ranks]",
            RuntimeWarning,
        )
    if config.steps_per_epoch is not None:
        check_steps(config, source, length)
        return Extent(length)
    lengths = lengths_of(config, source, messages)
    for rank, items in enumerate(lengths):
        if items < config.streams:
            raise EchoError(
                f"rank {rank} has {items} items in a pass, and needs at least {config.streams}, "
                "one for each of its streams (shards / ranks); pass fewer shards, or more data"
            )
    longest = max(lengths)
    uses = config.uses_of(longest)
    mine = lengths[0 if group is None else group.rank]
    fewest, all_uses = min(lengths), uses * len(messages) * (config.epochs or 1)
    if uses > MOST_UNEVEN * config.uses_of(fewest) and all_uses > MOST_UNEVEN_USES:
        raise ConfigError(
            f"rank {lengths.index(fewest)} has {fewest} items, each of which would be used "
            f"{uses // fewest} times, because another rank has {longest}; give the ranks parts of "
            "similar lengths"
        )
    if not fits(config, mine, uses):
        raise ConfigError(
            f"{uses} uses of {mine} items are too many for a shuffle_buffer of {config.capacity}; "
            "give the ranks parts of similar lengths, or lower shuffle_buffer"
        )
    return Extent(mine, uses, longest)


def _codes_of(config: Config, group: Group | None) -> tuple[int, ...]:
    if group is None:
        return ()
    from pyecho.state.loaded import digest

    # Without a log to replay, which decides the output of one rank only.
    options = options_of(config)
    return tuple(int(digest({name: options.get(name)})[:15], 16) for name in OPTIONS)


def _code_of_item(item: Any) -> int:
    """Return a number for the content of an item; 0 if it has none that can be told."""
    from pyecho.state.loaded import digest

    told = (np.ndarray, np.generic, int, float, str, bytes)
    try:
        leaves = leaves_of(item)
        if not all(isinstance(leaf, told) or is_tensor(leaf) for leaf in leaves):
            return 0
        return int(digest({"item": item})[:15], 16)
    except (RecursionError, CheckpointError):
        return 0
