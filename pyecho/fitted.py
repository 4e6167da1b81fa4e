"""Settings of one run, derived from the options, the surroundings and the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyecho.config import Config


@dataclass
class Wiring:
    """The surroundings of a run, as it comes to know them."""

    by_consumer: bool = False
    """True if the consumer's thread reads the source, and the run has no threads."""
    held: int = 2
    """Batches that the consumer holds at the same time."""
    grows_quietly: bool = False
    """True if the consumer may hold more of them without a warning."""
    reads_few: bool = False
    """True if the source waits for items that are kept: read no more than asked for."""
    lists: tuple[bool, ...] | None = None
    """True for each list in a batch that is a column, once known; see `items.rows.row_spec`."""
    resumes: bool = False
    """True if a state was loaded: the first item of its run was checked, which may be smaller."""


class Fitted(NamedTuple):
    """The options, and what follows from them for one pipeline.

    The native stages read it by name, and the options in it.
    """

    config: Config
    capacity: int
    """Distinct items in the pool: no more than a pass of the source needs."""
    prefetch: int
    wiring: Wiring
    threads: int = 0
    """Native threads that make batches."""
    slots_ahead: int = 1
    """Slots ahead of the pool, for examples that arrive together."""
    most_ahead: int = 32
    """Most batches made ahead that `prefetch` is raised to where batches are small."""
    held: int = 2
    """Batches that are in use outside of the stage at the same time."""
    shared_slots: bool = False
    """True if worker processes fill the slots."""
    epoch: int = 0
    """The first epoch of an `EchoBuffer`."""


_QUEUE = Config(factor=1, shuffle_buffer=0)


def queue_of(prefetch: int) -> Fitted:
    """Return the record of a stage that hands on items, each used once, this many ahead."""
    return Fitted(_QUEUE, 1, prefetch, Wiring())
