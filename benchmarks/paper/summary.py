"""What the runs say, figure by figure: plain arithmetic, nothing is trained or drawn here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from paper.conditions import Condition
from paper.experiments import WORKLOADS, Entry
from paper.plan import Setting, chosen_rate
from paper.train import Result
from paper.tuning import rate_of
from pyecho.bench.sampling import Sample

UNITS = {
    "3": "fresh examples, of the baseline's",
    "4": "speedup",
    "5": "times fewer fresh examples",
    "6": "fresh examples, of the baseline's",
    "7": "fresh examples used, of the baseline's",
    "quality": "at the end",
}
Results = Callable[[Condition, Entry], Sequence[Result]]
"""Finds the runs of all seeds of a condition, for an entry."""


@dataclass(frozen=True)
class Mark:
    """An entry with what was measured.

    Bars go from the best to the worst seed; they are relative to the baseline's median, so that
    the baseline has a bar as well. Nothing is compared unless every seed of both has reached the
    target: a median of those that were lucky would flatter.
    """

    entry: Entry
    runs: int
    reached: int
    rate: float
    tried: Mapping[float, float]
    """What every learning rate cost with the tuning seed."""
    measured: Sample | None = None
    fresh: Sample | None = None
    more: dict[str, Sample] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What is compared, in words."""
        condition = self.entry.condition
        if condition.factor == 1:
            return "baseline"
        if condition.variant == "batch":
            return "batch echoing"
        if condition.workload == "text":
            return "example echoing"
        return f"example echoing {condition.variant} augmentation"


def marks(
    entries: Sequence[Entry],
    results: Results,
    costs: Mapping[Setting, Mapping[int, float]],
) -> list[Mark]:
    """Return every entry with its numbers."""
    return [_mark(entry, results, costs) for entry in entries]


def _mark(entry: Entry, results: Results, costs: Mapping[Setting, Mapping[int, float]]) -> Mark:
    setting = Setting(entry.condition, entry.goal)
    tried = dict(costs[setting])
    first = WORKLOADS[entry.condition.workload].rate
    runs, base = results(entry.condition, entry), results(entry.baseline, entry)
    reached = sum(run.reached for run in runs)
    mark = Mark(
        entry,
        len(runs),
        reached,
        chosen_rate(setting, tried),
        {rate_of(first, doublings): tried[doublings] for doublings in sorted(tried)},
    )
    if entry.goal.target is None:
        return Mark(**{**vars(mark), "measured": _sample(runs, "held_out")})
    if not runs or reached < len(runs) or not base or not all(run.reached for run in base):
        return mark
    fresh, used = _sample(runs, "fresh"), _sample(runs, "used")
    base_fresh = median(run.fresh for run in base)
    base_used = median(run.used for run in base)
    more = {"used": used.times(1 / base_used), "read": fresh.times(1 / base_fresh)}
    measured = more["read"]
    if entry.figure == "7":
        measured = more["used"]
    elif entry.figure == "5":
        measured = Sample(tuple(base_fresh / run.fresh for run in runs))
    elif entry.figure == "4":
        base_seconds = median(run.seconds for run in base)
        measured = Sample(tuple(base_seconds / run.seconds for run in runs))
        more["fewer"] = Sample(tuple(base_fresh / run.fresh for run in runs))
        more["seconds"] = _sample(runs, "seconds")
        more["R"] = Sample(tuple(run.upstream_seconds / run.busy_seconds for run in runs))
    return Mark(**{**vars(mark), "measured": measured, "fresh": fresh, "more": more})


def _sample(runs: Sequence[Result], name: str) -> Sample:
    return Sample(tuple(getattr(run, name) for run in runs))


def findings(found: Sequence[Mark]) -> list[str]:
    """Say which of the paper's findings hold, and which do not."""
    said = [
        f"Fig. {mark.entry.figure}, {mark.entry.condition}: only {mark.reached} of {mark.runs} "
        "runs reached the target, so nothing is compared"
        for mark in found
        if mark.entry.goal.target is not None and mark.reached < mark.runs
    ]
    for name in WORKLOADS:
        by_variant = {
            mark.entry.condition.variant: mark.measured
            for mark in found
            if mark.entry.figure == "3"
            and mark.entry.series == name
            and mark.entry.condition.factor > 1
            and mark.measured is not None
        }
        order = [variant for variant in ("before", "after", "batch") if variant in by_variant]
        for better, worse in pairwise(order):
            said.append(_compared(name, better, by_variant[better], worse, by_variant[worse]))
    for mark in found:
        if mark.entry.figure == "4" and mark.entry.x == 5 and mark.measured is not None:
            verdict = "at least" if mark.measured.median >= 3.25 else "less than"
            said.append(
                f"Fig. 4: with e = 5 and R = {mark.more['R'].median:.1f} the target is reached "
                f"{mark.measured.median:.2f} times as fast, {verdict} the paper's 3.25"
            )
    return said


def _compared(name: str, better: Any, low: Sample, worse: Any, high: Sample) -> str:
    if low.high < high.low:
        how = "needs fewer fresh examples than"
        end = "with every seed"
    elif low.median < high.median:
        how, end = "needs fewer fresh examples than", "in the median; the seeds overlap"
    else:
        how, end = "does not need fewer fresh examples than", "unlike in the paper"
    return f"Fig. 3, {name}: {better} {how} {worse} ({low.median:.2f}, {high.median:.2f}), {end}"
