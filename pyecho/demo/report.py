"""A table and a figure of finished runs, with which the demonstration ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import PercentFormatter

from pyecho.bench.row import spread
from pyecho.bench.sampling import Sample
from pyecho.tools.arguments import columns

from .train import Run

PAPER_SPEEDUPS = {1: 1.0, 2: 1.80, 3: 2.43, 4: 3.06, 5: 3.25}
_GREY = "0.45"
_HEADINGS = (
    ("", "test", "fresh", "", "seconds", "", "Eq. 1", ""),
    ("e", "accuracy", "examples", "steps", "to target", "speedup", "allows", "R"),
)
Colors = dict[float, tuple[float, ...]]


@dataclass
class Row:
    """All runs with one echo factor, medians over the seeds.

    `reached` runs reached the target. If some did not, medians over the others would be biased, and
    all that follow `allowed` are None. `ratio`: R = t_up / t_down as measured: t_up of the
    calibration over the median t_down of the runs. `allowed`: the largest speedup that Eq. 1 allows
    at this factor and R.
    """

    factor: float
    runs: int
    reached: int
    accuracy: float
    ratio: float
    allowed: float
    fresh: float | None = None
    steps: float | None = None
    seconds: Sample | None = None
    speedup: float | None = None


def allowed_speedup(factor: float, ratio: float) -> float:
    """Return the largest speedup that Eq. 1 of the paper allows.

    One upstream step and `e` downstream steps take ``max(t_up, e * t_down)``. At best, an echoed
    use is worth as much as a fresh one, and `e` times fewer upstream steps are needed. `ratio`:
    R = t_up / t_down.
    """
    return factor * max(ratio, 1.0) / max(ratio, factor)


def summarize(runs: Sequence[Run], upstream_seconds: float) -> list[Row]:
    """Condense the runs into one row for every factor, in ascending order, the baseline's first.

    `upstream_seconds`: t_up, measured while the source never waited. During a run with a high
    factor the source sometimes waits for the trainer, so its speed cannot be measured then.
    """
    rows: list[Row] = []
    for factor in sorted({run.factor for run in runs}):
        group = [run for run in runs if run.factor == factor]
        ratio = upstream_seconds / median(run.downstream_seconds for run in group)
        reached = sum(run.reached for run in group)
        accuracy, allowed = median(run.accuracy for run in group), allowed_speedup(factor, ratio)
        row = Row(factor, len(group), reached, accuracy, ratio, allowed)
        rows.append(row)
        if reached < len(group):
            continue
        row.fresh = median(run.fresh for run in group)
        row.steps = median(run.steps for run in group)
        row.seconds = Sample(tuple(run.seconds for run in group))
        if rows[0].seconds:
            row.speedup = rows[0].seconds.median / row.seconds.median
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the result as a table for a terminal."""
    seeds = rows[0].runs
    lines = list(_HEADINGS)
    for row in rows:
        cells = (
            f"{row.factor:g}",
            f"{row.accuracy:.1%}",
            "-" if row.fresh is None else f"{row.fresh:,.0f}",
            "-" if row.steps is None else f"{row.steps:,.0f}",
            spread(row.seconds) or f"{row.reached} of {seeds} reached it",
            "-" if row.speedup is None else f"{row.speedup:.2f}x",
            f"{row.allowed:.2f}x",
            f"{row.ratio:.2f}",
        )
        lines.append(cells)
    title = (
        f"Median and range of {seeds} seed{'s' if seeds > 1 else ''}; "
        "R = t_up / t_down as measured in the runs"
    )
    return f"{title}\n\n{columns(lines)}"


def write_figure(runs: Sequence[Run], rows: Sequence[Row], target: float, path: Path) -> None:
    """Draw accuracy over time, and the gain of each factor; the suffix decides the format."""
    shades = colormaps["viridis"](np.linspace(0.05, 0.85, len(rows)))
    colors = {row.factor: tuple(shade) for row, shade in zip(rows, shades, strict=True)}
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_curves(left, runs, target, colors)
    _draw_speedups(right, rows, colors)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
        axes.legend(loc="lower right", facecolor="white", edgecolor="none", framealpha=0.8)
    figure.savefig(path, dpi=160)


def _draw_curves(axes: Axes, runs: Sequence[Run], target: float, colors: Colors) -> None:
    """Draw a line for each run, a thick one for the middle one of each factor."""
    for factor, color in colors.items():
        group = sorted((run for run in runs if run.factor == factor), key=lambda run: run.seconds)
        middle = group[(len(group) - 1) // 2]
        for run in group:
            style: dict[str, Any] = {"linewidth": 0.8, "alpha": 0.4}
            if run is middle:
                style = {"linewidth": 2.2, "label": f"e = {factor:g}", "zorder": 3}
            seconds = [point.seconds for point in run.curve]
            accuracies = [point.accuracy for point in run.curve]
            axes.plot(seconds, accuracies, color=color, **style)
            if run.reached:
                axes.plot(run.seconds, run.accuracy, "o", color=color, alpha=style.get("alpha"))
    axes.axhline(target, color=_GREY, linestyle="--", linewidth=1)
    axes.set(xlabel="seconds of training", ylabel="test accuracy", xlim=(0, None), ylim=(0, 1.05))
    axes.text(0, target, f" target {target:.1%}", color=_GREY, va="bottom")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title("Accuracy over time, same network and same slow source", loc="left")


def _draw_speedups(axes: Axes, rows: Sequence[Row], colors: Colors) -> None:
    """Draw the measured speedups beside those of the paper and what Eq. 1 allows."""
    ratio = median(row.ratio for row in rows)
    last = max(rows[-1].factor, *PAPER_SPEEDUPS)
    factors = np.linspace(1, last, 200)
    allowed = [allowed_speedup(factor, ratio) for factor in factors]
    bound = f"Eq. 1: bounds the time per step (median R = {ratio:.1f})"
    axes.plot(factors, allowed, "--", color=_GREY, label=bound)
    axes.plot(
        list(PAPER_SPEEDUPS),
        list(PAPER_SPEEDUPS.values()),
        "s-",
        color="tab:orange",
        markerfacecolor="white",
        label="paper: ResNet-50 on ImageNet, R about 6",
    )
    here = {row.factor: row.speedup for row in rows if row.speedup}
    axes.plot(
        list(here), list(here.values()), color="0.2", label="this machine (bar: range of the seeds)"
    )
    for row in rows:
        if row.speedup is None or row.seconds is None:
            continue
        base = row.speedup * row.seconds.median
        extremes = [base / row.seconds.high, base / row.seconds.low]
        axes.plot([row.factor] * 2, extremes, "_-", color=colors[row.factor], zorder=4)
        axes.plot(row.factor, row.speedup, "o", markersize=8, color=colors[row.factor], zorder=4)
        axes.annotate(
            f"{row.speedup:.2f}x",
            (row.factor, row.speedup),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )
    axes.set(xlabel="echo factor e", ylabel="speedup to target", xlim=(0.8, last + 0.7))
    axes.set_ylim(0, None)
    axes.set_title("Speedup over training without echoing", loc="left")
