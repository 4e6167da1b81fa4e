"""The experiments of "Faster Neural Network Training with Data Echoing" (arXiv:1907.05550), with
pyecho, on real data and at a scale that two CPU cores can train: a small residual net on
Fashion-MNIST and a small Transformer on the sources of Python's standard library.

Every condition is trained to the same held-out target, with a learning rate of its own that was
chosen with a separate seed. Ratios are taken seed by seed, and only where every seed reached the
target. Runs are kept in build/paper, so an interrupted command goes on. Fig. 4 is timed, so leave
the machine idle meanwhile.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from common import finish, new_parser, new_report, results_of, sample, save_figure
from matplotlib.figure import Figure
from paper.data import FOLDER
from paper.network import calibrate, train_over
from paper.training import BUFFERED_BATCHES, TUNING_SEED, Condition, Goal, Run, train, tune
from paper.workloads import WORKLOADS, workload

from pyecho._core import available_cores
from pyecho.bench.report import Report
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample
from pyecho.tools.arguments import positive_int, some_of


class Kind(NamedTuple):
    """The runs that a figure compares."""

    title: str
    measure: str
    unit: str = "examples"
    inverted: bool = False
    """True if the ratio says how many times less is needed."""


FIGURES = {
    "3": Kind("fresh examples to the target at e = 2", "fresh"),
    "4": Kind("seconds to the target over a slow network, R about 6", "seconds", "s", True),
    "5": Kind("how large e may be, at two batch sizes", "fresh", inverted=True),
    "6": Kind("batch sizes, as multiples", "fresh"),
    "7": Kind("shuffle buffers, in batches; examples used", "used"),
    "drift": Kind("seconds to the target while R drifts between 1 and 8", "seconds", "s"),
    "quality": Kind("what a fixed number of fresh examples reaches, e = 4", "held_out", ""),
}
SHORT = ("3", "4", "5")
GIVES_UP_AFTER = 4
"""Multiple of the fresh examples that the baseline is expected to need."""
PAPER: dict[str, dict[Any, float]] = {  # read off the paper's figures
    "3 fashion": {"batch": 0.848, "after": 0.657, "before": 0.576},  # ResNet-32, CIFAR-10
    "3 text": {"batch": 0.684, "before": 0.516},  # Transformer, LM1B
    "4": {1: 1.0, 2: 1.80, 3: 2.43, 4: 3.06, 5: 3.25},
    "5, batch 1": {1: 1.0, 2: 1.94, 4: 3.20, 8: 2.88, 16: 2.55},
    "5, batch 4": {1: 1.0, 2: 1.77, 4: 3.44, 8: 5.24, 16: 5.72},
    "6 batch": {0.25: 0.863, 1: 0.684, 4: 0.607},
    "6 before": {0.25: 0.545, 1: 0.517, 4: 0.564},
    "7 batch": {1: 0.684, 10: 0.655, 100: 0.576},
    "7 before": {},
}


class Entry(NamedTuple):
    """One mark in a figure."""

    figure: str
    series: str
    x: float
    condition: Condition
    baseline: Condition
    goal: Goal
    paper: float | None = None

    @property
    def what(self) -> str:
        """Describe the condition."""
        name, variant, factor, size, buffer, _ = self.condition
        how = {"batch": "batch echoing", "adaptive": "adaptive, at most"}.get(
            variant, f"{variant} augmentation" if name != "text" else "example echoing"
        )
        kept = f"{buffer} batches" if variant == "batch" else str(buffer)
        return f"{name}, {how} e = {factor}, batch {size}, buffer {kept}"


def condition(
    name: str, variant: Any, factor: int, *, batches: float = 1, buffer: int | None = None
) -> Condition:
    """Return a condition with a multiple of the workload's batch size, and a buffer in batches."""
    size = int(WORKLOADS[name].batch_size * batches)
    if buffer is None:
        # Echoed batches stay in order, unless a figure varies that.
        buffer = 1 if variant == "batch" else BUFFERED_BATCHES
    return Condition(name, variant, factor, size, buffer * (1 if variant == "batch" else size))


def to_target(of: Condition) -> Goal:
    """Return the goal of a workload. Runs with larger batches give up later."""
    data = WORKLOADS[of.workload]
    larger = max(1.0, of.batch_size / data.batch_size)
    return Goal(data.target, int(GIVES_UP_AFTER * data.expected_fresh * larger))


def entries(figures: Iterable[str], full: bool) -> Iterator[Entry]:
    """Yield all marks of some figures."""
    for figure in figures:
        for series, x, of, paper in _marks(figure, full):
            size = of.batch_size / WORKLOADS[of.workload].batch_size
            base = condition(of.workload, "before", 1, batches=size)
            goal = to_target(of)
            if figure == "drift":
                base = condition(of.workload, "adaptive", 8)._replace(drifts=True)
            if figure == "quality":
                goal = Goal(None, WORKLOADS[of.workload].quality_budget)
            yield Entry(figure, series, x, of, base, goal, paper)


def _marks(figure: str, full: bool) -> Iterator[tuple[str, float, Condition, float | None]]:
    """Yield series, place, condition and the paper's ratio."""
    if figure in ("3", "quality"):
        names = ("fashion", "fashion-more", "text") if figure == "3" else ("fashion", "text")
        for name in names if full else [each for each in names if each != "fashion-more"]:
            yield name, 0, condition(name, "before", 1), None
            for x, variant in enumerate(_variants(name), 1):
                expected = PAPER[f"3 {name.removesuffix('-more')}"][variant]
                if figure == "3":
                    yield name, x, condition(name, variant, 2), expected
                else:
                    yield name, x, condition(name, variant, 4), None
    elif figure == "4":
        for factor in (1, 2, 3, 4, 5) if full else (1, 3, 5):
            of = condition("fashion-more", "before", factor)
            yield "fashion-more", factor, of, PAPER["4"][factor]
    elif figure == "5":
        for batches in (1, 4) if full else (1,):
            for factor in (1, 2, 4, 8, 16) if full else (1, 2, 4):
                of = condition("text", "before", factor, batches=batches)
                yield f"batch {of.batch_size}", factor, of, PAPER[f"5, batch {batches}"][factor]
    elif figure in ("6", "7"):
        for variant in _variants("text"):
            paper = PAPER[f"{figure} {variant}"]
            for x in (0.25, 1, 4) if figure == "6" else (1, 10, 100):
                varied = {"batches": x} if figure == "6" else {"buffer": x}
                yield variant, x, condition("text", variant, 2, **varied), paper.get(x)
    else:
        for name in ("text", "fashion-more") if full else ("text",):
            ways = [("adaptive", 8), *(("before", factor) for factor in (1, 2, 4, 8))]
            for x, way in enumerate(ways):
                yield name, x, condition(name, *way)._replace(drifts=True), None


def _variants(name: str) -> tuple[str, ...]:
    return ("batch", "before") if name == "text" else ("batch", "after", "before")


def row_of(entry: Entry, runs: list[Run], base: list[Run]) -> Row | str:
    """Return the row of an entry, or why there is none."""
    kind = FIGURES[entry.figure]
    if entry.goal.target is None:
        return Row(entry.what, sample(run[kind.measure] for run in runs), "held out")
    for name, each in ((entry.what, runs), ("the baseline", base)):
        reached = sum(run["reached"] for run in each)
        if reached < len(each):
            return f"{entry.what}: {name} reached the target with {reached} of {len(each)} seeds"
    ours, theirs = (sample(run[kind.measure] for run in each) for each in (runs, base))
    ratio = theirs / ours if kind.inverted else ours / theirs
    target = "" if entry.paper is None else f"the paper: {entry.paper:g}"
    return Row(entry.what, ours, kind.unit, theirs, "the baseline", ratio, target)


def drawn(figure: str, rows: list[tuple[Entry, Row]]) -> Figure:
    """Draw one figure: medians with their ranges, and the paper's numbers."""
    sheet = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = sheet.subplots()
    for number, series in enumerate(dict.fromkeys(entry.series for entry, _ in rows)):
        chosen = [(entry, row) for entry, row in rows if entry.series == series]
        xs = [entry.x for entry, _ in chosen]
        found: list[Sample] = [row.compared() or row.measured for _, row in chosen]
        bars = [
            [each.median - each.low for each in found],
            [each.high - each.median for each in found],
        ]
        middle = [each.median for each in found]
        style = "o" if figure in ("3", "drift", "quality") else "o-"
        axes.errorbar(xs, middle, bars, fmt=style, color=f"C{number}", capsize=4, label=series)
        paper = [(entry.x, entry.paper) for entry, _ in chosen if entry.paper]
        if paper:
            label = f"{series}, the paper"
            axes.plot(*zip(*paper, strict=True), "s:", color=f"C{number}", mfc="white", label=label)
    if figure in ("5", "6", "7"):
        axes.set_xscale("log")
    if figure in ("3", "drift", "quality"):
        last = rows[-1][0].series
        names = {entry.x: entry.what.split(",")[1] for entry, _ in rows if entry.series == last}
        axes.set_xticks(list(names), list(names.values()), fontsize=7)
    axes.set_ylim(0)
    axes.set_title(FIGURES[figure].title, fontsize=9)
    axes.legend(fontsize=8)
    return sheet


def parsed_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__, seeds=3)
    add = parser.add_argument
    add("--full", action="store_true", help="all conditions, better with --seeds 5: hours")
    names = f"figures among {', '.join(FIGURES)} (default: {','.join(SHORT)}; with --full all)"
    add("--only", type=some_of(FIGURES), metavar="FIG,...", help=names)
    cores = available_cores()
    add("--jobs", type=positive_int, default=cores, metavar="N", help="runs at a time, a core each")
    return parser.parse_args(arguments)


Setting = tuple[Condition, Goal, bool]
"""Tuned condition, its goal, and True if it is timed over the slow network."""


def settings_of(entry: Entry) -> list[Setting]:
    """Return the settings of an entry and of its baseline."""
    return [(of, entry.goal, entry.figure == "4") for of in (entry.condition, entry.baseline)]


def made(
    settings: list[Setting], options: argparse.Namespace, report: Report
) -> tuple[dict[Setting, list[Run]], list[Any]]:
    """Make the runs that are not kept; return those of all seeds, and the rates that were tried."""
    steps, doublings, folder = (40, 80, 160), 5, FOLDER
    if options.quick:
        steps, doublings, folder = (4,), 0, options.output
    searches = dict.fromkeys((of, goal, doublings) for of, goal, _ in settings)
    tuned = results_of(tune, searches, folder, processes=options.jobs)
    seeds = range(TUNING_SEED + 1, TUNING_SEED + 1 + options.seeds)
    jobs = {
        (*each, seed): (of, goal, tuned[of, goal, doublings][0][0], seed)
        for seed in seeds
        for each in settings
        for of, goal, _ in [each]
    }
    untimed = [job for (*_, timed, _), job in jobs.items() if not timed]
    runs = results_of(train, untimed, folder, processes=options.jobs)
    slow = [job for (*_, timed, _), job in jobs.items() if timed]
    if slow:
        middle = (condition("fashion-more", "before", 4), *steps)
        bandwidth, upstream_seconds = results_of(calibrate, [middle], folder)[middle]
        over = results_of(train_over, [(bandwidth, *job) for job in slow], folder)
        ratio = sample(upstream_seconds / run["busy_seconds"] for run in over.values())
        report.note(f"Fig. 4: R was {ratio.median:.1f} [{ratio.low:.1f}, {ratio.high:.1f}]")
    found = {
        each: [
            over[(bandwidth, *job)] if each[2] else runs[job]
            for job in (jobs[(*each, seed)] for seed in seeds)
        ]
        for each in settings
    }
    tried = [
        {"condition": of, "goal": goal, "rates": costs} for (of, goal, _), costs in tuned.items()
    ]
    return found, tried


def main(options: argparse.Namespace) -> None:
    """Make the runs, and report."""
    chosen = list(entries(options.only or (FIGURES if options.full else SHORT), options.full))
    if options.quick:  # the first test reaches the target
        goals = {True: Goal(None, 64), False: Goal(1e9, 10_000)}
        chosen = [each._replace(goal=goals[each.goal.target is None]) for each in chosen]
    facts = {"version": "full" if options.full else "short"}
    for name in sorted({entry.condition.workload for entry in chosen}):
        data = workload(name)
        facts[name] = f"target {data.target:g} {data.held_out_unit}, data {data.data}"
    report = new_report("paper", "The paper's experiments", options, **facts)
    report.stem += f"-{facts['version']}"
    report.ratio_name = "Of the baseline's; Fig. 4, 5: times fewer"
    settings = list(dict.fromkeys(each for entry in chosen for each in settings_of(entry)))
    runs, tried = made(settings, options, report)
    rows: dict[str, list[tuple[Entry, Row]]] = {}
    for entry in chosen:
        row = row_of(entry, *(runs[each] for each in settings_of(entry)))
        if isinstance(row, str):
            report.note(f"{entry.figure}: {row}")
        else:
            rows.setdefault(entry.figure, []).append((entry, row))
    for figure, pairs in rows.items():
        title = f"Fig. {figure}" if figure.isdecimal() else figure.capitalize()
        report.add(f"{title}: {FIGURES[figure].title}", [row for _, row in pairs])
    finish(report, options, tried=tried)
    for figure, pairs in rows.items():
        name = f"fig{figure}" if figure.isdecimal() else figure
        save_figure(drawn(figure, pairs), options.output / f"{report.name}-{name}.png")


if __name__ == "__main__":
    main(parsed_arguments())
