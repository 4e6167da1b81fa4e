"""The results, figure by figure. Plain arithmetic, without training or drawing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from paper.conditions import Condition
from paper.experiments import WORKLOADS, Entry
from paper.plan import Setting, chosen_rate
from paper.train import Result
from paper.tuning import rate_of
from pyecho.bench.row import spread
from pyecho.bench.sampling import Sample

UNITS = {
    "3": "fresh examples, of the baseline's",
    "4": "speedup",
    "5": "times fewer fresh examples",
    "6": "fresh examples, of the baseline's",
    "7": "fresh examples used, of the baseline's",
    "drift": "seconds, of those of the adaptive factor",
    "quality": "at the end",
}
Results = Callable[[Condition, Entry], Sequence[Result]]
"""Finds the runs of all seeds of a condition, for an entry."""


@dataclass(frozen=True)
class Mark:
    """An entry with its measurements.

    Ratios are taken seed by seed, so that they include the spread of the baseline. Nothing is
    compared unless every seed of both has reached the target, because a median of the successful
    runs would be biased.
    """

    entry: Entry
    runs: int
    reached: int
    rate: float
    tried: Mapping[float, float]
    """The cost of every learning rate with the tuning seed."""
    measured: Sample | None = None
    fresh: Sample | None = None
    more: dict[str, Sample] = field(default_factory=dict)

    @property
    def missed(self) -> str:
        """The reason why nothing is compared; "" if there is a comparison."""
        if self.measured is not None:
            return ""
        if self.reached < self.runs or not self.runs:
            return f"{self.reached} of {self.runs} runs reached the target"
        return "the baseline has not reached the target with every seed"

    @property
    def name(self) -> str:
        """A description of the comparison."""
        condition = self.entry.condition
        if condition.variant == "adaptive":
            return f"Adaptive({condition.factor})"
        if condition.drifts:
            return f"e = {condition.factor}"
        if condition.factor == 1:
            return "baseline"
        if condition.variant == "batch":
            return "batch echoing"
        if condition.workload == "text":
            return "example echoing"
        return f"example echoing {condition.variant} augmentation"


def marks(
    entries: Sequence[Entry], results: Results, costs: Mapping[Setting, Mapping[int, float]]
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
    if not _all_reached(runs) or not _all_reached(base):
        return mark
    more = {"used": _ratio(runs, base, "used"), "read": _ratio(runs, base, "fresh")}
    measured = more["read"]
    if entry.figure == "7":
        measured = more["used"]
    elif entry.figure == "5":
        measured = _ratio(base, runs, "fresh")
    elif entry.figure == "drift":
        measured = _ratio(runs, base, "seconds")
        more["seconds"] = _sample(runs, "seconds")
    elif entry.figure == "4":
        measured = _ratio(base, runs, "seconds")
        more["fewer"] = _ratio(base, runs, "fresh")
        more["seconds"] = _sample(runs, "seconds")
        more["R"] = Sample(tuple(run.upstream_seconds / run.busy_seconds for run in runs))
    fresh = _sample(runs, "fresh")
    return Mark(**{**vars(mark), "measured": measured, "fresh": fresh, "more": more})


def _all_reached(runs: Sequence[Result]) -> bool:
    return bool(runs) and all(run.reached for run in runs)


def _ratio(runs: Sequence[Result], to: Sequence[Result], name: str) -> Sample:
    """Return the ratios of one number, each to that of the run with the same seed."""
    return Sample(tuple(getattr(a, name) / getattr(b, name) for a, b in zip(runs, to, strict=True)))


def _sample(runs: Sequence[Result], name: str) -> Sample:
    return Sample(tuple(getattr(run, name) for run in runs))


def findings(found: Sequence[Mark]) -> list[str]:
    """Return for each of the paper's findings whether it holds."""
    said = [
        f"Fig. {mark.entry.figure}, {mark.entry.condition}: {mark.missed}, so nothing is compared"
        for mark in found
        if mark.missed
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
    for name in WORKLOADS:
        fixed = [
            mark
            for mark in found
            if (mark.entry.figure, mark.entry.series) == ("drift", name)
            and mark.entry.condition != mark.entry.baseline
            and mark.measured is not None
        ]
        if fixed:
            best = min(fixed, key=lambda mark: mark.more["seconds"].median)
            said.append(
                f"Drift, {name}: the best fixed factor, e = {best.entry.condition.factor}, takes "
                f"{spread(best.measured)} times as long to the target as the adaptive one"
            )
    for mark in found:
        if mark.entry.figure == "4" and mark.entry.x == 5 and mark.measured is not None:
            uses = 5 * mark.more["used"].median
            said.append(
                f"Fig. 4: with e = 5 and R = {mark.more['R'].median:.1f} the target is reached "
                f"{spread(mark.measured)} times as fast (the paper: 3.25 at R = 6), with "
                f"{uses:.2f} times the baseline's steps"
            )
    return said


def _compared(name: str, better: Any, low: Sample, worse: Any, high: Sample) -> str:
    how = "needs fewer fresh examples than"
    if low.median >= high.median:
        how, end = "does not need fewer fresh examples than", "unlike in the paper"
    elif len(low.values) == 1:
        end = "with the one seed"
    elif low.high < high.low:
        end = "with every seed"
    else:
        end = "in the median; the seeds overlap"
    return f"Fig. 3, {name}: {better} {how} {worse} ({low.median:.2f}, {high.median:.2f}), {end}"
