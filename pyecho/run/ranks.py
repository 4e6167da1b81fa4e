"""Several ranks: how they agree on the number of batches of an epoch.

A run is made of V streams (`shards`), V / R of them on each of R ranks. Rank r reads items r,
r + R, ... of the whole source, and deals them to its streams in turn; rows r, r + R, ... of a
global batch are its own. At the beginning of an epoch the ranks gather the lengths of their
sources, and all streams are to have as many uses as the longest one. A stream that runs short
makes additional uses. Where a length is unknown, streams go on without end, and every `STEPS`
batches the ranks gather whether the items of all of them are used up.

An adaptive factor is decided by all ranks together. Their pools are equal but for the items in
them, and take what a schedule says (csrc/core/plan/schedule.hpp). Now and then the ranks gather
how many items have arrived, and all take as many as there are on the slowest one, evenly over the
next batches. A source with fewer items than the longest one is read again for the rest of a pass.

Only the consumer's thread takes part, in the order of its ``next()``.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pyecho._core import ConfigError, EchoError
from pyecho.config import Config
from pyecho.items.nest import leaves_of, map_nest
from pyecho.items.rows import first_rows, rows_of
from pyecho.items.spec import is_tensor
from pyecho.run.notices import warn_of_whole_source
from pyecho.source.source import Source

if TYPE_CHECKING:
    from pyecho.source.passes import Opening

ENDLESS = -1
STEPS = 16
"""Batches between two looks at the ends of the sources, where lengths are unknown."""
JOINT_STEPS = 8
"""Batches between two looks at what has arrived, with an adaptive factor."""
JOINT_AHEAD = 4
"""Batches behind the next look that are decided before it, so that they can be made ahead."""
FIRST_KNOTS = [(1 + JOINT_AHEAD, 0)]
"""What is decided when a pass begins: to fill the pools, and nothing else up to the first look."""
EVER = 2**62
"""Number of a batch that no run gets to: nothing is left to decide."""


class Group(Protocol):
    """Processes that run the same program. All of them call each method, in the same order."""

    rank: int
    size: int

    def gather(self, values: list[int]) -> list[list[int]]:
        """Return the values of all ranks, which pass equally many 64-bit numbers."""

    def share(self, value: Any, rank: int) -> Any:
        """Return the value that this rank passes; those of the others are ignored."""


class Alone:
    """A group of one."""

    rank, size = 0, 1

    def gather(self, values: list[int]) -> list[list[int]]:
        """Return the values."""
        return [values]

    def share(self, value: Any, rank: int) -> Any:
        """Return the value."""
        return value


def check_rank(name: str, rank: Any, ranks: Any) -> None:
    """Raise `ConfigError` unless there can be such a rank; `name`: of what got the numbers."""
    whole = all(isinstance(number, int | np.integer) for number in (rank, ranks))
    if not whole or not 0 <= rank < ranks:
        raise ConfigError(
            f"{name} needs a number of ranks of at least 1, and the number of a rank below it, got "
            f"rank {rank!r} of {ranks!r}"
        )


def gathered(group: Group, values: list[int]) -> list[list[int]]:
    """Return the values of all ranks; collective. Raises `ConfigError` if the group fails to."""
    found = group.gather(values)
    try:
        lists = [[operator.index(value) for value in each] for each in found]
    except TypeError as error:
        raise _no_lists(group, values, found) from error
    if len(lists) != group.size or any(len(each) != len(values) for each in lists):
        raise _no_lists(group, values, found)
    return lists


def _no_lists(group: Group, values: list[int], found: Any) -> ConfigError:
    return ConfigError(
        f"gather() of the group ({type(group).__name__}) must return {group.size} lists, one for "
        f"each rank, of {len(values)} integers, got {found!r:.200}"
    )


@dataclass(frozen=True)
class Extent:
    """How far the passes that begin go. The native plan reads it by name, see plan_config.hpp."""

    items: int | None = None
    iteration_uses: int = 0
    total_uses: int = 0


class Evened:
    """Iterates an epoch of a run in a group, and ends it where the ranks agree to."""

    def __init__(
        self, batches: Iterator[Any], look: Callable[[], int], end: Callable[[], None]
    ) -> None:
        self._batches = batches
        self._look = look
        self._end = end
        self._left = 0  # batches until the next look; after the last one, the end
        self._ready: list[Any] = []  # a batch, while the look behind it is under way

    def __iter__(self) -> Iterator[Any]:
        """Return itself."""
        return self

    def __next__(self) -> Any:
        """Return the next batch; collective now and then, see `Run`.

        It looks behind a batch, not before the next one, so that a state knows what was found.
        """
        if not self._ready:
            if self._left == 0:
                self._left = self._look()
                if self._left == 0:
                    try:
                        self._end()
                    finally:  # it may raise the source's error
                        self._batches = iter(())
            self._ready.append(next(self._batches))
            self._left -= 1
        if self._left == 0:  # Ctrl-C here leaves the batch to the next call
            self._left = self._look()
        return self._ready.pop()


@dataclass(frozen=True)
class Agreement:
    """Agreement of the ranks for the passes that begin."""

    extent: Extent
    items: int | None = None
    """Of the longest source, if all lengths are known and decide the number of batches."""
    lengths: list[int] | None = None
    """Of the sources of all ranks, if they are known."""
    lacking: bool = False
    """True if some stream of some rank has no item."""
    example: Any = None
    """An item of another rank, in a list; None if this one has items."""
    fillers: int = 0
    """Streams of this rank without an item; each gets the first item of the first rank with one."""


def agree(
    group: Group,
    config: Config,
    source: Source,
    items: int | None,
    opening: Opening,
    epoch: int,
    taken: tuple[int, int] | None,
) -> Agreement | None:
    """Agree on an epoch; collective.

    `items`: of a pass, None if unknown. `epoch`: its number. `taken`: iterations and batches taken
    when the state was that this rank goes on from, None without one. Returns None if no rank has
    an item, if this one's source has failed, and if a state tells the rest.
    """
    streams, joint = config.streams, config.joint
    # Reading tells more than len(): a source may end at once, or have more items than that.
    count = items if items is None or source.native or items >= streams else None
    count = count if opening.count is None else opening.count
    here = streams if count is None else min(count, streams)
    failed = opening.error is not None
    steps = config.steps_per_epoch is not None
    unknown = count is None or config.unique_in_batch
    if config.alone:
        unknown = True  # nobody else is to know the end, and so no item is lost to a wrong length
    if steps:
        unknown = source.one_shot  # else it is read over and over
    elif joint:
        unknown = count is None or source.one_shot
    once = source.native or source.stateful is not None
    known = [_code_of(config), -1 if count is None else count, here, failed, unknown, once]
    found = gathered(group, [*known, _code_of_item(opening.first), epoch, *(taken or (-1, -1))])
    for rank, (code, *_) in enumerate(found):
        if code != found[0][0]:
            raise ConfigError(
                f"the loaders of ranks 0 and {rank} have other options; all that decide the output "
                "must be the same on every rank, the seed and a replayed log included"
            )
        if found[rank][-2:] != found[0][-2:]:
            raise EchoError(
                f"the loaders of ranks 0 and {rank} go on at different batches, or one of them at "
                "the beginning; load the states of one moment on all ranks, or none"
            )
    _, counts, heres, failures, unknowns, onces, firsts, epochs, *_ = zip(*found, strict=True)
    if len(set(epochs)) > 1:
        raise ConfigError(
            f"the loaders of the ranks begin the epochs {list(epochs)}; call set_epoch() on every "
            "rank, and load a state on all of them or none"
        )
    if failed:
        return None
    if any(failures):
        raise EchoError(f"the source of rank {failures.index(True)} failed; see the error there")
    if taken is not None:
        return None
    if not any(heres):
        return None
    if group.size > 1 and firsts[0] and len(set(firsts)) == 1 and len(set(counts)) == 1:
        warn_of_whole_source(source, group.size)
    refuse_remainders(config, list(counts))
    longest_source: int | None = None
    if joint:
        longest_source, extent = _joint_extent(config, counts, unknowns, onces, group.rank)
    elif config.adaptive is not None:
        return Agreement(Extent(items), items)  # alone
    elif steps:
        lasting = not any(unknowns) and min(heres) == streams
        extent = Extent(count, 0, 0 if lasting else ENDLESS)
    elif any(unknowns):
        if config.epochs is not None:
            raise ConfigError(
                "epochs= with several ranks needs sources that tell their length, and no "
                "unique_in_batch; use steps_per_epoch="
            )
        extent = Extent(count, ENDLESS, ENDLESS)
    else:
        longest_source = max(counts)
        uses = config.uses_of(longest_source)
        extent = Extent(count, uses, uses * max(1, (config.epochs or 1) - epoch))
    example = None
    if min(heres) < streams:
        giver = next(rank for rank, there in enumerate(heres) if there)
        lent = (_one_of(source, opening), source.batched) if giver == group.rank else None
        example = [_as_item_of(source, *group.share(lent, giver))]
        if source.native and here < streams:
            raise _lack_of_items()
    lengths = None if min(counts) < 0 else list(counts)
    fillers = longest_source if joint and longest_source and not here else streams - here
    return Agreement(extent, longest_source, lengths, min(heres) < streams, example, fillers)


def refuse_remainders(config: Config, counts: list[int]) -> None:
    """Raise `ConfigError` if passes that flow into one another cannot be dealt to the streams."""
    flows, streams = config.epochs or config.steps_per_epoch, config.streams
    if flows and any(each % streams for each in counts):
        raise ConfigError(
            f"epochs= and steps_per_epoch= with several shards per rank need sources whose length "
            f"is a multiple of {streams} (shards / ranks) in every pass, got {counts}"
        )


def check_pass(config: Config, first: int | None, items: int | None) -> None:
    """Raise `ConfigError` if a pass that flows from others does not go with the first one."""
    if config.epochs and items != first:
        raise ConfigError(
            f"epochs= with several ranks or shards needs passes of one length, and the first has "
            f"{first} items and a later one {items}; leave out epochs=, or pass steps_per_epoch="
        )
    if items is not None:
        refuse_remainders(config, [items])


def _joint_extent(
    config: Config, counts: Any, unknowns: Any, onces: Any, rank: int
) -> tuple[int | None, Extent]:
    """Return the items of a pass of an adaptive factor, and its extent on this rank."""
    steps = config.steps_per_epoch is not None
    if any(unknowns):
        raise ConfigError(
            "an adaptive factor of several ranks needs sources that can be read more than once"
            + ("" if steps else " and tell how many examples or items they have")
            + f", and that of rank {unknowns.index(True)} does not; pass one that does"
            + ("" if steps else ", or steps_per_epoch= where only the length is unknown")
        )
    if steps:
        if 0 in counts:
            raise ConfigError(
                f"with steps_per_epoch= an adaptive factor needs items on every rank, and rank "
                f"{counts.index(0)} has none; leave that rank out, or leave out steps_per_epoch="
            )
        return None, Extent()
    if len(set(counts)) > 1 and any(onces):
        raise ConfigError(
            f"an adaptive factor reads short sources again up to the length of the longest one "
            f"(they have {list(counts)} items), and that of rank {onces.index(True)} fills slots "
            "itself or has a state of its own; give all ranks equally many items, or pass "
            "steps_per_epoch="
        )
    return max(counts), Extent(counts[rank])


def decide(group: Group, stage: Any, taken: int, items: int | None) -> int:
    """Return how many batches follow until the next look of an adaptive factor; collective.

    `taken`: batches of all iterations so far. `items`: of a pass, if it is to end. Looks are due
    behind batches 1, 2, 4, 8 and then every `JOINT_STEPS`, up to the one that finds the end.
    """
    rest = until_look(taken, JOINT_STEPS)
    horizon, decided = stage._knots[-1]
    until = taken + rest + JOINT_AHEAD
    if horizon < until:
        arrived = max(decided, min(count for [count] in gathered(group, [stage._arrived])))
        stage._extend([(until, arrived)])
        if items is not None and arrived == items + 1:  # the end as well
            stage._extend([(EVER, arrived)])
    return rest


def until_look(taken: int, steps: int) -> int:
    """Return how many batches follow up to number 1, 2, 4, ... `steps`, or a multiple of that."""
    return steps - taken % steps if taken >= steps else max(1, 2 ** taken.bit_length() - taken)


def longest(group: Group, items: int | None) -> int | None:
    """Return the items of the longest source of all ranks, None if one is unknown; collective."""
    counts = [count for [count] in gathered(group, [-1 if items is None else items])]
    return None if min(counts) < 0 else max(counts)


def end_of_all(group: Group, taken: int, own_batches: int | None) -> int | None:
    """Return the number of batches of all ranks, once it is known; collective.

    `own_batches`: of this rank, if known; `taken`: so far.
    """
    counts = [count for [count] in gathered(group, [-1 if own_batches is None else own_batches])]
    return None if min(counts) < 0 else max(taken, *counts)


def with_fillers(passes: Iterator[Iterator[Any]], agreement: Agreement) -> Iterator[Iterator[Any]]:
    """Yield the passes; the first and only one ends with an item for each stream that has none."""
    for items in passes:
        yield _filled(items, agreement)
        return
    yield itertools.repeat(agreement.example[0], agreement.fillers)


def _filled(items: Iterator[Any], agreement: Agreement) -> Iterator[Any]:
    yield from items
    yield from itertools.repeat(agreement.example[0], agreement.fillers)


def _one_of(source: Source, opening: Opening) -> Any:
    """Return the first item, of a batch its first row."""
    if source.native:
        raise _lack_of_items()
    item = opening.first
    if not source.batched or rows_of(item) == 1:
        return item
    return first_rows(item, 1)


def _as_item_of(source: Source, item: Any, batched: bool) -> Any:
    """Return an item with one row as this source has them, with a batch axis or without."""
    if batched == source.batched:
        return item
    if batched:
        return map_nest(operator.itemgetter(0), item)
    return map_nest(lambda leaf: leaf[None] if is_tensor(leaf) else np.asarray([leaf]), item)


def _lack_of_items() -> ConfigError:
    return ConfigError(
        "a rank has fewer items than streams (shards / ranks), and a source that fills slots "
        "itself cannot lend or take one; give every rank at least so many items"
    )


def _code_of(config: Config) -> int:
    from pyecho.state.state import digest, options_of

    # A log that is to be replayed decides the output, too.
    return int(digest(options_of(config) | {"replay": config.replay})[:15], 16)


def _code_of_item(item: Any) -> int:
    """Return a number for the content of an item; 0 if it has none that can be told."""
    from pyecho.state.state import digest

    told = (np.ndarray, np.generic, int, float, str, bytes)
    if not all(isinstance(leaf, told) or is_tensor(leaf) for leaf in leaves_of(item)):
        return 0
    try:
        return int(digest({"item": item})[:15], 16)
    except RecursionError:
        return 0
