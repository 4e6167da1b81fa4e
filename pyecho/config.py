"""The configuration of a loader or buffer: every option once, with its default and its check."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

import numpy as np

from pyecho._core import ConfigError, available_cores, uses_of_pass
from pyecho.adaptive import Adaptive
from pyecho.checked import (
    MAX_USES,
    MOST_COUNTED,
    Init,
    bounded,
    called,
    check_fields,
    checked_factor,
    flag,
    one_of,
)
from pyecho.items.programs import Ops, checked_ops
from pyecho.items.ragged import Fields, checked_fields

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext


MAX_CAPACITY = 2**29 - 1
USES_BY_DEFAULT = 2**26  # in a full pool, of four bytes each

Factor = float | Adaptive

Workers = Literal["process", "thread"]
"""The kind of worker that runs ``source[index]``."""


class Options(TypedDict, total=False):
    """The names and types of a loader's options, which `EchoLoader` describes."""

    batch_size: int | None
    unbatch: bool | Literal["lists"]
    drop_last: bool
    pad_last: bool
    collate_fn: Callable[[list[Any]], Any] | None
    fields: Fields
    shuffle_buffer: int | None
    unique_in_batch: bool
    seed: int
    epochs: int | None
    steps_per_epoch: int | None
    shards: int | None
    ops: Ops
    augment_example: Callable[[Any, np.random.Generator], Any] | None
    augment: Callable[[Any, np.random.Generator], Any] | None
    augment_workers: int
    shuffle: bool
    sampler: Iterable[Any] | None
    num_workers: int
    workers: Workers
    worker_init_fn: Callable[[int], object] | None
    multiprocessing_context: str | BaseContext | None
    prefetch: int
    threads: int | None
    pin_memory: bool | None
    max_bytes: int | None
    with_info: bool
    copy: bool
    progress: bool


@dataclass(frozen=True, kw_only=True)
class Config:
    """The options, checked, and the rank that they are for.

    Raises `ConfigError` if an option is wrong or two do not fit together.
    """

    factor: Factor = 2
    batch_size: int | None = bounded(None, 1, 2**30)
    unbatch: bool | Literal["lists"] = one_of(True, False, "lists", default=False)
    drop_last: bool = flag()
    pad_last: bool = flag()
    collate_fn: Callable[[list[Any]], Any] | None = called("a list of examples")
    fields: Fields = None
    shuffle_buffer: int | None = bounded(None, 0, MAX_CAPACITY)
    unique_in_batch: bool = flag()
    seed: int = bounded(0, 0, 2**64 - 1)
    epochs: int | None = bounded(None, 1, 2**63)
    steps_per_epoch: int | None = bounded(None, 1, 2**32)
    shards: int | None = bounded(None, 1, 2**20)
    ops: Ops = None
    augment_example: Callable[[Any, np.random.Generator], Any] | None = called("(example, rng)")
    augment: Callable[[Any, np.random.Generator], Any] | None = called("(batch, rng)")
    augment_workers: int = bounded(0, 0, 256)
    shuffle: bool = flag()
    sampler: Iterable[Any] | None = None
    num_workers: int = bounded(0, 0, 1024)
    workers: Workers = one_of(*get_args(Workers), default="process")
    worker_init_fn: Callable[[int], object] | None = called("a worker's number")
    multiprocessing_context: str | BaseContext | None = None
    prefetch: int = bounded(2, 1, 2**20)
    threads: int | None = bounded(None, 0, 256)
    pin_memory: bool | None = one_of(True, False, None, default=None)
    max_bytes: int | None = bounded(None, 0, 2**63 - 1)
    with_info: bool = flag()
    copy: bool = flag()
    progress: bool = flag()
    kind: Literal["loader", "buffer"] = "loader"
    rank: int = bounded(0, 0, 2**20)
    ranks: int = bounded(1, 1, 2**20)
    segment_uses: int = bounded(0, 0, 2**62)  # of a stream; 0: as segments.hpp says. For tests

    def __post_init__(self) -> None:
        """Check everything, and settle what has a default that depends on the rest."""
        if self.adaptive is None:
            object.__setattr__(self, "factor", checked_factor(self.factor))
        check_fields(self)
        if self.ops is not None:
            object.__setattr__(self, "ops", checked_ops(self.ops))
        object.__setattr__(self, "fields", checked_fields(self.fields))
        self._settle_pool()
        for name in _OF_EXAMPLES.split() if self.batch_size is None else ():
            value = getattr(self, name)
            if value not in (None, False, "lists"):
                shown = f"{name}=True" if value is True else name
                raise ConfigError(
                    f"{shown} makes batches of examples, so it needs a batch_size; in batch "
                    "echoing the source makes the batches"
                )
        for is_wrong, why in _REFUSED:
            if is_wrong(self):
                raise ConfigError(why.format(self))

    def _settle_pool(self) -> None:
        batch_size, most = self.batch_size or 0, math.ceil(self.most_uses)
        if self.shuffle_buffer is None:
            room = min(MAX_CAPACITY, (MAX_USES - 1) // most)
            least = batch_size if self.leaves_length_open else min(batch_size, 1)
            if least > room:
                raise ConfigError(
                    f"batch_size must be at most {room} with this factor, because the pool holds "
                    f"each item of a batch, got {batch_size}"
                )
            pool = max(least, min(10 * batch_size, USES_BY_DEFAULT // most))
            object.__setattr__(self, "shuffle_buffer", min(pool, room))

    @property
    def splits_batches(self) -> bool:
        """True if items are batches, whose rows are the examples."""
        return self.unbatch is True

    @property
    def capacity(self) -> int:
        """Distinct items in the pool."""
        return max(1, self.shuffle_buffer or 0)

    @property
    def adaptive(self) -> Adaptive | None:
        """The factor, if it is an adaptive one."""
        return self.factor if isinstance(self.factor, Adaptive) else None

    @property
    def most_uses(self) -> float:
        """The factor, or the most that an adaptive one may become."""
        return self.factor.max if isinstance(self.factor, Adaptive) else float(self.factor)

    @property
    def streams(self) -> int:
        """Streams of this rank."""
        return (self.shards or self.ranks) // self.ranks

    @property
    def flows(self) -> bool:
        """True if passes flow into each other."""
        return self.epochs is not None or self.steps_per_epoch is not None

    @property
    def bounded(self) -> bool:
        """True if an epoch's batches are known when it begins: equally many, or all full."""
        return self.ranks > 1 or self.shards is not None or self.pad_last

    @property
    def bounded_by(self) -> str:
        """The option that makes it so, for messages."""
        return "group=" if self.ranks > 1 else "pad_last=True" if self.pad_last else "shards="

    @property
    def leaves_length_open(self) -> bool:
        """True if the draws, or the source's speed, decide how many batches a pass makes."""
        return self.unique_in_batch or self.adaptive is not None

    @property
    def by_index(self) -> str | None:
        """The option that needs a source with items by index, for messages; None: there is none."""
        if self.sampler is not None or self.shuffle:
            return "shuffle=True" if self.shuffle else "sampler="
        return "num_workers=" if self.num_workers else None

    @property
    def least_capacity(self) -> int:
        """Items that the pools of all streams must hold."""
        rows = self.batch_size or 1 if self.unique_in_batch else 1
        return -(-rows // self.streams) * self.streams

    @property
    def linked(self) -> bool:
        """True if threads of the loader collate or augment every batch."""
        made = self.augment, self.augment_example, self.collate_fn
        return any(function is not None for function in made)

    @property
    def held_by_links(self) -> int:
        """Batches that these threads and their queue hold."""
        return self.prefetch + 1 + max(1, self.augment_workers) if self.linked else 0

    def capacity_for(self, items: int | None) -> int:
        """Return a capacity that gives the same output for a pass of this many items."""
        if items is None or self.flows or self.adaptive is not None:
            return self.capacity
        least = self.batch_size or 1 if self.unique_in_batch else 1
        return min(self.capacity, -(-max(items, least) // self.streams) * self.streams)

    def uses_of(self, items: int) -> int:
        """Return the uses of a pass of this many items, equally many in each stream."""
        if items * self.most_uses > MOST_COUNTED:
            raise ConfigError(
                f"a pass of {items} items, {self.most_uses} times each, has more than the "
                f"{MOST_COUNTED} uses that are counted; lower factor, or the source's len()"
            )
        uses = uses_of_pass(-(-items // self.streams), self.most_uses) * self.streams
        unit = math.lcm(self.batch_size or 1, self.streams) if self.pad_last else 1
        return -(-uses // unit) * unit

    def batches_of(self, items: int | None) -> int | None:
        """Return the number of batches of an epoch whose pass has this many items, if known."""
        if self.steps_per_epoch is not None or items is None:
            return self.steps_per_epoch
        if self.leaves_length_open:
            return None
        uses, rows = self.uses_of(items), self.batch_size or 1
        return uses // rows if self.drop_last else -(-uses // rows)

    def threads_for(self, example_bytes: int) -> int:
        """Return how many native threads make batches; 0 if that costs more than it saves."""
        if self.threads is not None:
            return self.threads
        rows = self.batch_size or 1
        if self.ops is None and rows * (PLAN_NS + example_bytes * COPY_NS) <= HAND_OVER_NS:
            return 0
        return max(1, min(4, available_cores() - 1))


_OF_EXAMPLES = "unbatch unique_in_batch drop_last pad_last fields ops collate_fn augment_example"

_REFUSED: tuple[tuple[Callable[[Config], object], str], ...] = (
    (
        lambda c: c.shuffle and c.sampler is not None,
        "shuffle=True and sampler= both decide the order; pass one of them",
    ),
    (
        lambda c: c.capacity * math.ceil(c.most_uses) >= MAX_USES,
        f"shuffle_buffer times factor must stay below {MAX_USES}, "
        "got {0.capacity} * {0.most_uses:g}",
    ),
    (
        lambda c: c.adaptive and c.capacity < (c.batch_size or 0),
        "with an adaptive factor the pool must hold a batch of {0.batch_size}, but shuffle_buffer "
        "= {0.shuffle_buffer}; raise it",
    ),
    (
        lambda c: c.unique_in_batch and c.capacity < (c.batch_size or 0),
        "unique_in_batch needs a pool of at least batch_size = {0.batch_size} items, but "
        "shuffle_buffer = {0.shuffle_buffer}; raise it",
    ),
    (
        lambda c: c.collate_fn is not None and c.splits_batches,
        "collate_fn makes batches of whole examples, and unbatch=True splits batches; pass a "
        "source that yields examples, or leave out one of the two",
    ),
    (
        lambda c: c.collate_fn is not None and (c.fields is not None or c.ops is not None),
        "collate_fn makes batches of examples of any kind, and fields and ops are for arrays; do "
        "it in collate_fn, or leave out one of the two",
    ),
    (
        lambda c: c.pad_last and c.drop_last,
        "pad_last=True fills the last batch, and drop_last=True leaves the last batch out; pass "
        "one of them",
    ),
    (
        lambda c: c.streams * c.ranks != (c.shards or c.ranks),
        "shards must be a multiple of the number of ranks, {0.ranks}, got {0.shards}",
    ),
    (
        lambda c: c.adaptive and c.shards is not None,
        "an adaptive factor follows the source of its rank, and shards= deals items to streams "
        "that go on alike; leave out shards=, or pass a number as the factor, such as the "
        "recommended_factor that stats() shows",
    ),
    (
        lambda c: c.bounded and c.steps_per_epoch is None and c.leaves_length_open,
        "{0.bounded_by} needs a number of batches that is known when an epoch begins, and with "
        "unique_in_batch=True the draws decide, with an Adaptive factor the source's speed; pass "
        "steps_per_epoch=",
    ),
    (
        lambda c: c.capacity < c.least_capacity,
        "{0.streams} of the {0.shards} shards are on each rank and share its pool, which must hold "
        "a batch if unique_in_batch=True, else an item of each; raise shuffle_buffer to "
        "{0.least_capacity} or more, got {0.shuffle_buffer}",
    ),
    (
        lambda c: (c.steps_per_epoch or 0) * (c.batch_size or 1) % c.streams,
        "steps_per_epoch * batch_size must be a multiple of shards / ranks = {0.streams}",
    ),
)
"""Options that do not go together, and what to say of them."""

PLAN_NS, COPY_NS, HAND_OVER_NS = 30, 0.2, 50_000
"""Approximate cost of planning a row, copying a byte, and, at worst, waking another thread."""


def with_options(init: Init) -> Init:
    """Have help() and completion show every option with its default in the place of `**options`."""
    own, options = inspect.signature(init), inspect.signature(Config).parameters
    shown = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
    shown += [options[name] for name in Options.__annotations__]
    init.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
    return init
