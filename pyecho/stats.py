"""Counts and times of an echo stage."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import isnan, nan
from typing import Any


@dataclass(frozen=True)
class EchoStats:
    """Counts and times of an echo stage, over all epochs of a loader.

    Times are wall-clock seconds. `fresh`, `read`, `emitted` and the times only grow; the rest
    describes the current moment.
    """

    fresh: int = 0
    """Items whose first use was handed out, re-reads in later epochs included (the paper's cost
    measure)."""
    read: int = 0
    """Items read from the source; also ahead of the consumer."""
    emitted: int = 0
    """Uses of items handed out; in example echoing the rows of all batches."""
    batches: int = 0
    """Batches handed out."""
    source_seconds: float = 0.0
    """Time spent inside the source."""
    upstream_seconds: float = 0.0
    """Time the source takes for `read` items when nothing holds it up. More than `source_seconds`
    if the source makes items ahead by itself while the loader waits; an estimate from the reads
    before the first wait, and between that and the time from one item to the next."""
    consumer_wait_seconds: float = 0.0
    """Time the consumer spent waiting for a batch."""
    downstream_seconds: float = 0.0
    """Time the consumer spent on its own work between batches."""
    bytes_gathered: int = 0
    """Bytes copied into batches."""
    occupancy: float = 0.0
    """Items in the shuffle pool, as a fraction of its capacity."""
    outstanding_leases: int = 0
    """Batches of running epochs that the consumer keeps alive."""
    host_allocations: int = 0
    """Blocks of memory allocated for slots and batches."""
    h2d_bytes: int = 0
    """Bytes copied to a device."""
    log: dict[Any, Any] = field(default_factory=dict, compare=False)
    """Decisions of an `Adaptive` factor so far, for `Adaptive.replay`, in read-only arrays, by the
    first epoch of passes that flow into each other, and of later segments (epoch, pass, joints)."""

    def __add__(self, other: EchoStats) -> EchoStats:
        """Return the counts and times of both, with the current state of both together."""
        names = [each.name for each in fields(self) if each.compare]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return EchoStats(**sums, log=self.log | other.log)

    def __str__(self) -> str:
        """Return what there is to say in a few lines, for a person; `repr()` has every number."""
        if not self.emitted:
            return "nothing was handed out yet"
        lines = [
            f"{self.emitted:,} uses of {self.fresh:,} items in {self.batches:,} batches: effective "
            f"factor {self.effective_factor:.3g}, {self.fresh_share:.0%} fresh"
        ]
        if not isnan(self.ratio):
            use = self.downstream_seconds / self.emitted
            lines.append(
                f"R = {self.ratio:.3g}: the source takes {_time(self.ratio * use)} an item, the "
                f"consumer {_time(use)} a use"
            )
        elif not self._upstream:
            lines.append(
                "R is not known: no time of a source was seen, as where a program puts items"
            )
        waited = self.consumer_wait_seconds
        if total := waited + self.downstream_seconds:
            lines.append(f"the consumer waited {_time(waited)} of {_time(total)}")
        return "\n".join(lines)

    def scalars(self) -> dict[str, float]:
        """Return what a logger may plot; what is not known yet is left out.

        ``echo/R``, ``echo/effective_factor``, ``echo/fresh_share``, ``echo/occupancy`` and
        ``echo/wait_share``: the share of the consumer's time that it waited for batches.
        """
        busy, waited = self.downstream_seconds, self.consumer_wait_seconds
        scalars = {
            "R": self.ratio,
            "effective_factor": self.effective_factor,
            "fresh_share": self.fresh_share,
            "occupancy": self.occupancy,
            "wait_share": waited / (waited + busy) if waited + busy else nan,
        }
        return {f"echo/{name}": value for name, value in scalars.items() if not isnan(value)}

    @property
    def effective_factor(self) -> float:
        """Uses per fresh item so far; nan before the first."""
        return self.emitted / self.fresh if self.fresh else nan

    @property
    def fresh_share(self) -> float:
        """Share of the uses so far that were fresh, `1 / effective_factor`; nan before any."""
        return self.fresh / self.emitted if self.emitted else nan

    @property
    def ratio(self) -> float:
        """R = t_up / t_down, source time per item over consumer time per use; nan while unknown.

        The source's time is `upstream_seconds`, or `source_seconds` while that is unknown.
        """
        if not (self.read and self.emitted and self.downstream_seconds > 0 and self._upstream):
            return nan
        return (self._upstream / self.read) / (self.downstream_seconds / self.emitted)

    @property
    def _upstream(self) -> float:
        return self.upstream_seconds or self.source_seconds

    @property
    def recommended_factor(self) -> float:
        """The factor up to which repeats are free (the paper's e = R), at least 1; or nan."""
        return nan if isnan(self.ratio) else max(1.0, self.ratio)


def _time(seconds: float) -> str:
    """Return a time in a unit that leaves few digits."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
