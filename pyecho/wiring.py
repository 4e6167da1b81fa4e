"""The wiring of the stages of one run, and the checks that it shares with the options."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.checked import checked_int


def bounded(default: int | None, minimum: int, maximum: int) -> Any:
    """Return the field of a whole number; None is one only if it is the default."""
    return field(default=default, metadata={"minimum": minimum, "maximum": maximum})


def flag(default: bool | None, also: str | None) -> Any:
    """Return the field of a flag that may have one value besides True and False."""
    return field(default=default, metadata={"also": also})


def check_fields(record: Any) -> None:
    """Have whole numbers be ints within their bounds, and flags be True or False."""
    for option in fields(record):
        name, value = option.name, getattr(record, option.name)
        if isinstance(option.default, bool) or "also" in option.metadata:
            known = [True, False, *option.metadata.values()]
            if isinstance(value, bool | np.bool_):
                object.__setattr__(record, name, bool(value))
            elif not isinstance(value, str | None) or value not in known:
                *others, last = map(repr, known)
                raise ConfigError(f"{name} must be {', '.join(others)} or {last}, got {value!r}")
        elif option.metadata and (value is not None or option.default is not None):
            object.__setattr__(record, name, checked_int(name, value, **option.metadata))


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """The wiring of the stages of one run: no options, but the surroundings of a loader or buffer.

    The native stages read it by name, as they do `Config`.
    """

    epoch: int = bounded(0, 0, 2**64 - 1)
    """The first epoch of an `EchoBuffer`."""
    slots_ahead: int = bounded(1, 1, 2**30)
    """Slots ahead of the pool, for examples that arrive together."""
    held: int = bounded(2, 1, 2**29)
    """Batches that the consumer holds at the same time."""
    most_ahead: int = bounded(32, 1, 2**10)
    """Most batches made ahead that `prefetch` is raised to where batches are small."""
    grows_quietly: bool = False
    """True if the consumer may hold more of them without a warning."""
    reads_few: bool = False
    """True if the source waits for items that are kept: read no more than asked for."""
    by_consumer: bool = False
    """True if the consumer's thread reads the source, and the run has no threads."""
    lists: tuple[bool, ...] | None = None
    """True for each list in a batch that is a column, once known; see `items.rows.row_spec`."""
    resumes: bool = False
    """True if a state was loaded: the first item of its run was checked, which may be smaller."""
    shared_slots: bool = False
    """True if worker processes fill the slots."""
    segment_uses: int = bounded(0, 0, 2**62)
    """Uses of a stream in a segment; 0: as csrc/core/plan/segments.hpp says. For tests."""
    rank: int = bounded(0, 0, 2**20)
    ranks: int = bounded(1, 1, 2**20)

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_fields(self)
