"""Changes to a pipeline, and the worth of each. Plain arithmetic.

A change is worth the learning per second with it, over that without it. A fresh example counts 1,
an example with e uses E(e): from `Worth` where there is one, else e up to PUBLISHED_USES, beyond
which nothing is published that holds for every task.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np

from pyecho.tools.advise.times import SLACK, Times
from pyecho.worth.estimate import MOST_FACTOR, PUBLISHED_USES, Best, least_best

MOST_DOUBLINGS = 3
"""Workers are foretold up to eight times the number that was measured."""

Kind = Literal[
    "threads", "augmentation", "gather", "upload", "memory", "workers", "echo", "step", "-"
]


@dataclass(frozen=True)
class Facts:
    """Measurements of a pipeline beside its times. None: not known, or not to be had."""

    items: int | None = None
    """Items of a pass of this rank."""
    item_bytes: float | None = None
    """Bytes of an item, as it comes from the source."""
    memory_bytes: int | None = None
    """Memory that the system could still give."""
    busy_cores: float | None = None
    """Processors that the source kept busy while it ran freely."""
    cores: int = 1
    """Processors that this process may use."""
    workers: dict[int, float] = field(default_factory=dict)
    """Times of the source for a batch, by its number of workers."""
    unmeasured: str = ""
    """Why there are no times with workers."""
    workers_of: str = "loader"
    """The object that has the option `num_workers`: the loader, or the DataLoader it reads."""
    epochs: int | None = None
    """Passes of the training; None: many."""
    worth: tuple[float, ...] = ()
    """By `Worth`, E(1), E(2), ...; empty if it is not known."""

    def learned(self, factor: float) -> float:
        """Return E(factor), the fresh examples that are worth as much as one with all its uses.

        At least 0.1, also where repeats undo what was learned, because gains are over it.
        """
        if not self.worth:
            return min(factor, PUBLISHED_USES)
        known = np.interp(factor, range(1, len(self.worth) + 1), self.worth)
        return max(0.1, float(known))

    def speed(self, times: Times, factor: float) -> float:
        """Return the learning per second, in fresh batches."""
        return self.learned(factor) / (factor * times.period(factor))

    def best(self, times: Times) -> Best:
        """Return the least factor with the most learning per second."""
        most = MOST_FACTOR if times.serial else times.ratio
        return least_best(lambda factor: self.speed(times, factor), most)


@dataclass(frozen=True)
class Remedy:
    """One change, or none."""

    kind: Kind
    """Part of the pipeline that is changed, "memory", "echo", or "-" for nothing."""
    action: str
    """A sentence without its end, for a person."""
    gain: float
    """Learning per second with it over that without it."""
    reason: str
    """The measurement that decides it."""
    factor: float = 1.0
    """The echo factor to use with it."""

    def __str__(self) -> str:
        """Return a line for a person."""
        gain = f" ({self.gain:.1f} times the learning per second)" if self.gain > SLACK else ""
        return f"{self.action}{gain}: {self.reason}."


def remedies(times: Times, factor: float, limit: str, facts: Facts) -> tuple[Remedy, ...]:
    """Return the changes that gain, the best first.

    Of changes that gain as much, those without repeats come first, then the simpler ones.
    """
    if not times.downstream and limit == "source" and not times.serial:
        reason = "the time of a step decides which factor fills the accelerator"
        return (Remedy("step", "Pass a step function", 1.0, reason, factor),)
    left = [change for change in _changes(times, factor, limit, facts) if change.gain > SLACK]
    ranked: list[Remedy] = []
    while left:
        best = max(change.gain for change in left)
        equal = [change for change in left if change.gain * SLACK >= best]
        left = [change for change in left if change.gain * SLACK < best]
        ranked += sorted(equal, key=_effort)
    return tuple(ranked) or (_no_change(times, factor, limit, facts),)


def _effort(change: Remedy) -> tuple[bool, int]:
    """Return what orders changes that gain as much."""
    return change.factor > SLACK, get_args(Kind).index(change.kind)


def _no_change(times: Times, factor: float, limit: str, facts: Facts) -> Remedy:
    """Return what is left to say where no change gains."""
    best = facts.best(times).factor
    if factor > SLACK * best and not times.serial:
        reason = "it takes as many steps per second, with more fresh examples"
        return Remedy("echo", f"Lower factor to {best:.1f}", 1.0, reason, best)
    reason = f"at e = {factor:g} the source is about as fast as the rest"
    if limit == "consumer":
        reason = "the accelerator is full, and only a faster step takes more steps per second"
    elif limit == "source" and times.upstream / factor > SLACK * times.cycle:
        reason = "the source is the limit, and no change that was looked at gains"
    return Remedy("-", "Change nothing", 1.0, reason, factor)


def _changes(times: Times, factor: float, limit: str, facts: Facts) -> Iterator[Remedy]:
    now = facts.speed(times, factor)
    parts = times.parts(factor)
    rest = max(value for name, value in parts.items() if name != limit)
    if times.serial:
        best = facts.best(replace(times, serial=False))
        yield Remedy(
            "threads",
            "Leave out threads=0, so that the source is read meanwhile",
            best.speed / now,
            f"{_ms(times.upstream / factor)} of the source and {_ms(times.cycle)} of the rest of a "
            "batch add up",
            best.factor,
        )
        return
    gain = parts[limit] / rest if rest else 1.0
    reason = f"{_ms(parts[limit])} of a batch, beside {_ms(rest)} of the next slower part"
    actions: dict[Kind, str] = {
        "augmentation": f"Use augment_workers={math.ceil(times.augment_workers * gain)}, if the "
        f"augmentation releases the GIL and there are cores for it ({facts.cores} here), or ops=",
        "gather": f"Use more threads than {times.gather_threads}",
        "upload": "Send fewer bytes: pyecho.torch.Device(dtype=) converts on the device, and "
        "Device(echo=True) sends each example once",
    }
    for kind, action in actions.items():
        if kind == limit:
            yield Remedy(kind, action, gain, reason, factor)
    yield from _kept(times, now, facts)
    yield from _workers(times, now, facts)
    yield from _echo(times, factor, now, facts)


def _kept(times: Times, now: float, facts: Facts) -> Iterator[Remedy]:
    """Yield memory, from which all passes but the first read the examples, if they fit there."""
    free, epochs = facts.memory_bytes, facts.epochs
    if not facts.items or not facts.item_bytes or free is None or epochs == 1:
        return
    total = facts.items * facts.item_bytes
    if total >= free:
        return
    speed = 1 / times.cycle
    if epochs is not None:
        speed = epochs / (times.period(1) + (epochs - 1) * times.cycle)
    yield Remedy(
        "memory",
        "Keep the examples in memory after the first pass",
        speed / now,
        f"{facts.items:,} take {_size(total)}, and {_size(free)} are free",
    )


def _workers(times: Times, now: float, facts: Facts) -> Iterator[Remedy]:
    if not facts.workers:
        return
    (few, slow), (more, fast) = sorted(facts.workers.items())
    if slow <= SLACK * fast:
        return  # they share something that is the limit
    computes = facts.busy_cores is not None and facts.busy_cores > 0.5
    most = max(more, facts.cores) if computes else more * 2**MOST_DOUBLINGS
    part = 2 * (slow - fast)  # of the time is shared out; in the rest workers wait for another

    def upstream(count: int) -> float:
        return slow - part * (1 - few / count)

    count = few
    while count < most and upstream(count) > SLACK * times.cycle:
        count = min(2 * count, most)
    best = facts.best(replace(times, upstream=upstream(count)))
    if best.factor > SLACK and best.speed < SLACK * facts.best(times).speed:
        return  # echoing alone does as much
    echoed = f" and factor={best.factor:.1f}" if best.factor > SLACK else ""
    why = f"of {facts.cores} cores" if computes else "and the source waits more than it computes"
    yield Remedy(
        "workers",
        f"Use num_workers={count} of the {facts.workers_of}{echoed}",
        best.speed / now,
        f"{more} are {slow / fast:.1f} times as fast as {few}, {why}",
        best.factor,
    )


def _echo(times: Times, factor: float, now: float, facts: Facts) -> Iterator[Remedy]:
    best, speed = facts.best(times)
    known = f"up to {PUBLISHED_USES} uses are nearly as good as fresh examples, by published curves"
    if facts.worth:
        known = f"{best:.1f} uses are worth {facts.learned(best):.1f} fresh examples, by Worth"
    action = f"{'Raise' if best > factor else 'Lower'} factor to {best:.1f}"
    yield Remedy("echo", action, speed / now, f"R is {times.ratio:.1f}, and {known}", best)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms"


def _size(size_bytes: float) -> str:
    unit = min(4, int(math.log(max(size_bytes, 1), 1000)))
    return f"{size_bytes / 1000**unit:.3g} {('B', 'KB', 'MB', 'GB', 'TB')[unit]}"
