"""Derives the advice from times and facts: predictions, and changes in the order of their gain."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from pyecho.tools.advise.model import (
    FACTORS,
    SLACK,
    Advice,
    Facts,
    Kind,
    Prediction,
    Remedy,
    Times,
    as_ms,
)
from pyecho.worth.estimate import PUBLISHED_USES

MOST_DOUBLINGS = 3
"""Workers are foretold up to eight times the number that was measured."""


def advice_on(times: Times, factor: float, steps: int, facts: Facts) -> Advice:
    """Return the advice that follows from these times for a loader with this factor."""
    parts = times.parts(factor)
    limit = max(parts, key=parts.__getitem__)
    never = times.serial or not 0 < times.cycle <= SLACK * times.downstream
    full = None if never else max(1.0, times.ratio)
    predictions = tuple(_prediction(times, at, steps) for at in FACTORS)
    remedies = tuple(_ranked(times, factor, limit, facts))
    return Advice(factor, steps, times, full, limit, facts, remedies, predictions)


def _prediction(times: Times, factor: float, steps: int) -> Prediction:
    period = times.period(factor)
    idle = max(0.0, 1 - times.downstream / period) if times.downstream else None
    return Prediction(factor, 1 / period, idle, steps * period)


def _ranked(times: Times, factor: float, limit: str, facts: Facts) -> Iterator[Remedy]:
    """Yield the changes that gain, the best first; of those that gain as much, by their effort."""
    if not times.downstream and limit == "source" and not times.serial:
        reason = "the time of a step decides which factor fills the accelerator"
        yield Remedy("step", "Pass a step function", 1.0, reason, factor)
        return
    left = [change for change in _changes(times, factor, limit, facts) if change.gain > SLACK]
    if not left:
        yield _no_change(times, factor, limit, facts)
    while left:
        best = max(change.gain for change in left)
        equal = [change for change in left if change.gain * SLACK >= best]
        left = [change for change in left if change.gain * SLACK < best]
        yield from sorted(equal, key=lambda change: change.effort)


def _no_change(times: Times, factor: float, limit: str, facts: Facts) -> Remedy:
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
    if times.serial:
        best = facts.best(replace(times, serial=False))
        action = "Leave out threads=0, so that the source is read meanwhile"
        reason = (
            f"{as_ms(times.upstream / factor)} of the source and {as_ms(times.cycle)} of the rest "
            "of a batch add up"
        )
        yield Remedy("threads", action, best.speed / now, reason, best.factor)
        return
    parts = times.parts(factor)
    slowest = parts.pop(limit)
    rest = max(parts.values())
    gain = slowest / rest if rest else 1.0
    actions: dict[Kind, str] = {
        "augmentation": f"Use augment_workers={math.ceil(times.augment_workers * gain)}, if the "
        f"augmentation releases the GIL and there are cores for it ({facts.cores} here), or ops=",
        "gather": f"Use more threads than {times.gather_threads}",
        "upload": "Send fewer bytes: pyecho.torch.Device(dtype=) converts on the device, and "
        "Device(echo=True) sends each example once",
    }
    reason = f"{as_ms(slowest)} of a batch, beside {as_ms(rest)} of the next slower part"
    for kind, action in actions.items():
        if kind == limit:
            yield Remedy(kind, action, gain, reason, factor)
    yield from _kept(times, now, facts)
    yield from _workers(times, now, facts)
    best = facts.best(times)
    known = f"up to {PUBLISHED_USES} uses are nearly as good as fresh examples, by published curves"
    if facts.worth:
        learned = facts.learned(best.factor)
        known = f"{best.factor:.1f} uses are worth {learned:.1f} fresh examples, by Worth"
    action = f"{'Raise' if best.factor > factor else 'Lower'} factor to {best.factor:.1f}"
    reason = f"R is {times.ratio:.1f}, and {known}"
    yield Remedy("echo", action, best.speed / now, reason, best.factor)


def _kept(times: Times, now: float, facts: Facts) -> Iterator[Remedy]:
    """Yield memory, from which all passes but the first read the examples, if they fit there."""
    free, epochs = facts.memory_bytes, facts.epochs
    total = (facts.items or 0) * (facts.item_bytes or 0)
    if free is None or epochs == 1 or not 0 < total < free:
        return
    speed = 1 / times.cycle
    if epochs is not None:
        speed = epochs / (times.period(1) + (epochs - 1) * times.cycle)
    action = "Keep the examples in memory after the first pass"
    reason = f"{facts.items:,} take {_size(total)}, and {_size(free)} are free"
    yield Remedy("memory", action, speed / now, reason)


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
    action = f"Use num_workers={count} of the {facts.workers_of}{echoed}"
    why = f"of {facts.cores} cores" if computes else "and the source waits more than it computes"
    reason = f"{more} are {slow / fast:.1f} times as fast as {few}, {why}"
    yield Remedy("workers", action, best.speed / now, reason, best.factor)


def _size(size_bytes: float) -> str:
    unit = min(4, int(math.log(max(size_bytes, 1), 1000)))
    return f"{size_bytes / 1000**unit:.3g} {('B', 'KB', 'MB', 'GB', 'TB')[unit]}"
