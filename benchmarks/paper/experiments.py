"""The figures: the conditions in each, with their baselines and the paper's conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from paper import reference
from paper.conditions import BUFFERED_BATCHES, Condition, Goal, Variant
from paper.fashion import Fashion, MoreFashion
from paper.text import Text
from paper.workload import Workload

FIGURES = {
    "3": "fresh examples to the target at e = 2",
    "4": "seconds to the target over a slow network, R about 6",
    "5": "how large e may be, at two batch sizes",
    "6": "batch sizes",
    "7": "shuffle buffers",
    "drift": "seconds to the target while R drifts between 1 and 8 every minute, simulated time",
    "quality": "what a fixed number of fresh examples reaches, e = 4",
}
WORKLOADS: dict[str, type[Workload]] = {each.name: each for each in (Fashion, MoreFashion, Text)}
GIVES_UP_AFTER = 4
"""Multiple of the fresh examples that the baseline is expected to need."""


@dataclass(frozen=True)
class Entry:
    """One mark in a figure."""

    figure: str
    series: str
    x: float
    condition: Condition
    baseline: Condition
    goal: Goal
    paper: float | None = None
    timed: bool = False


def condition(
    name: str, variant: Variant, factor: int, *, batches: float = 1, buffer: int | None = None
) -> Condition:
    """Return a condition with the workload's own batch size and buffer, or with multiples.

    `buffer` is in batches.
    """
    size = int(WORKLOADS[name].batch_size * batches)
    if buffer is None:
        # Echoed batches stay in order, unless a figure varies that.
        buffer = 1 if variant == "batch" else BUFFERED_BATCHES
    return Condition(name, variant, factor, size, buffer * (1 if variant == "batch" else size))


def to_target(of: Condition) -> Goal:
    """Return the goal of a workload. Runs with larger batches give up later."""
    workload = WORKLOADS[of.workload]
    larger = max(1.0, of.batch_size / workload.batch_size)
    return Goal(workload.target, int(GIVES_UP_AFTER * workload.expected_fresh * larger))


def entries(figures: Iterable[str], *, full: bool) -> list[Entry]:
    """Return all marks of some figures, in the order of the figures."""
    make = {
        "3": _fig3,
        "4": _fig4,
        "5": _fig5,
        "6": _fig6,
        "7": _fig7,
        "drift": _drift,
        "quality": _quality,
    }
    wanted = set(figures)
    return [entry for name in FIGURES if name in wanted for entry in make[name](full)]


def default_figures(*, full: bool) -> tuple[str, ...]:
    """Return the figures to run by default."""
    return tuple(FIGURES) if full else ("3", "4", "5")


def _entry(
    figure: str, of: Condition, x: float, series: str, paper: float | None, batches: float = 1
) -> Entry:
    base = condition(of.workload, "before", 1, batches=batches)
    return Entry(figure, series, x, of, base, to_target(of), paper)


def _variants(name: str) -> tuple[Variant, ...]:
    return ("batch", "before") if name == "text" else ("batch", "after", "before")


def _fig3(full: bool) -> Iterator[Entry]:
    papers = {
        "fashion": "ResNet-32, CIFAR-10",
        "fashion-more": "ResNet-32, CIFAR-10",
        "text": "Transformer, LM1B",
    }
    if not full:
        del papers["fashion-more"]
    for name, paper in papers.items():
        yield _entry("3", condition(name, "before", 1), 0, name, 1.0)
        for x, variant in enumerate(_variants(name), 1):
            expected = reference.FRACTIONS[paper][variant]
            yield _entry("3", condition(name, variant, 2), x, name, expected)


def _fig4(full: bool) -> Iterator[Entry]:
    for factor in (1, 2, 3, 4, 5) if full else (1, 3, 5):
        of = condition("fashion-more", "before", factor)
        entry = _entry("4", of, factor, "speedup", reference.SPEEDUPS[factor])
        yield replace(entry, timed=True)


def _fig5(full: bool) -> Iterator[Entry]:
    for batches in (1, 4) if full else (1,):
        for factor in (1, 2, 4, 8, 16) if full else (1, 2, 4):
            of = condition("text", "before", factor, batches=batches)
            expected = reference.UPPER_BOUND[batches][factor]
            yield _entry("5", of, factor, f"batch {of.batch_size}", expected, batches=batches)


def _fig6(full: bool) -> Iterator[Entry]:
    for variant in _variants("text"):
        for batches in (0.25, 1, 4) if full else (0.25, 1):
            of = condition("text", variant, 2, batches=batches)
            expected = reference.BATCH_SIZES[variant][batches]
            yield _entry("6", of, batches, variant, expected, batches=batches)


def _fig7(full: bool) -> Iterator[Entry]:
    for variant in _variants("text"):
        for buffer in (1, 10, 100) if full else (1, 100):
            of = condition("text", variant, 2, buffer=buffer)
            yield _entry("7", of, buffer, variant, reference.BUFFERS[variant].get(buffer))


def _drift(full: bool) -> Iterator[Entry]:
    for name in ("text", "fashion-more") if full else ("text",):
        adaptive = condition(name, "adaptive", 8)
        fixed = [condition(name, "before", factor) for factor in (1, 2, 4, 8)]
        drifting = [replace(each, drifts=True) for each in (adaptive, *fixed)]
        for x, of in enumerate(drifting):
            yield Entry("drift", name, x, of, drifting[0], to_target(of))


def _quality(full: bool) -> Iterator[Entry]:
    for name in ("fashion", "text") if full else ("fashion",):
        base = condition(name, "before", 1)
        goal = Goal(None, WORKLOADS[name].quality_budget)
        for x, of in enumerate([base, *(condition(name, v, 4) for v in _variants(name))]):
            yield Entry("quality", name, x, of, base, goal)
