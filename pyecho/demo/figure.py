"""The figure: accuracy over time, and the gain of each echo factor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import PercentFormatter

from .experiment import Outcome
from .summary import PAPER_SPEEDUPS, Row, allowed_speedup
from .train import Run

_GREY = "0.45"


def write_figure(outcome: Outcome, rows: Sequence[Row], path: Path) -> None:
    """Draw the outcome and write it to `path`, whose suffix decides the format."""
    shades = np.linspace(0.05, 0.85, len(rows)) if len(rows) > 1 else [0.05]
    viridis = colormaps["viridis"]
    colors = {row.factor: viridis(shade) for row, shade in zip(rows, shades, strict=True)}
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
    _draw_curves(left, outcome.runs, outcome.plan.target, colors)
    _draw_speedups(right, rows, colors)
    figure.savefig(path, dpi=160)


def _draw_curves(
    axes: Axes,
    runs: Sequence[Run],
    target: float,
    colors: dict[float, tuple[float, float, float, float]],
) -> None:
    for factor, color in colors.items():
        group = sorted((run for run in runs if run.factor == factor), key=lambda run: run.seconds)
        middle = group[(len(group) - 1) // 2]
        for run in group:
            highlighted = run is middle
            axes.plot(
                [0.0, *(point.seconds for point in run.curve)],
                [float("nan"), *(point.accuracy for point in run.curve)],
                color=color,
                linewidth=2.2 if highlighted else 0.8,
                alpha=1.0 if highlighted else 0.4,
                label=f"e = {factor:g}" if highlighted else None,
                zorder=3 if highlighted else 2,
            )
            if run.reached:
                axes.plot(
                    run.seconds,
                    run.curve[-1].accuracy,
                    marker="o",
                    markersize=7 if highlighted else 4,
                    color=color,
                    alpha=1.0 if highlighted else 0.5,
                    zorder=4,
                )
    axes.axhline(target, color=_GREY, linestyle="--", linewidth=1)
    axes.annotate(
        f"target {target:.1%}",
        (0.0, target),
        xycoords=("axes fraction", "data"),
        xytext=(4, 3),
        textcoords="offset points",
        ha="left",
        va="bottom",
        color=_GREY,
    )
    axes.set(xlabel="seconds of training", ylabel="test accuracy", xlim=(0, None), ylim=(0, 1.05))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title("Accuracy over time, same network and same slow source", loc="left")
    axes.legend(loc="lower right", facecolor="white", edgecolor="none", framealpha=0.8)


def _draw_speedups(
    axes: Axes, rows: Sequence[Row], colors: dict[float, tuple[float, float, float, float]]
) -> None:
    ratio = float(np.median([row.ratio for row in rows]))
    last = max(rows[-1].factor, *PAPER_SPEEDUPS)
    factors = np.linspace(1, last, 200)
    axes.plot(
        factors,
        [allowed_speedup(factor, ratio) for factor in factors],
        color=_GREY,
        linestyle="--",
        linewidth=1.2,
        label=f"Eq. 1: bounds the time per step (median R = {ratio:.1f})",
    )
    axes.plot(
        list(PAPER_SPEEDUPS),
        list(PAPER_SPEEDUPS.values()),
        color="tab:orange",
        marker="s",
        markerfacecolor="white",
        linewidth=1.2,
        label="paper: ResNet-50 on ImageNet, R about 6",
    )
    measured = [(row.factor, row.speedup) for row in rows if row.speedup is not None]
    axes.plot(
        [factor for factor, _ in measured],
        [speedup.median for _, speedup in measured],
        color="0.2",
        linewidth=2,
        label="this machine (bar: fastest and slowest seed)",
        zorder=3,
    )
    for factor, speedup in measured:
        axes.errorbar(
            factor,
            speedup.median,
            yerr=[[speedup.median - speedup.low], [speedup.high - speedup.median]],
            color=colors[factor],
            marker="o",
            markersize=8,
            capsize=4,
            zorder=4,
        )
        axes.annotate(
            f"{speedup.median:.2f}x",
            (factor, speedup.median),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            path_effects=[withStroke(linewidth=3, foreground="white")],
            zorder=5,
        )
    axes.set(xlabel="echo factor e", ylabel="speedup to target", xlim=(0.8, last + 0.7))
    axes.set_ylim(0, None)
    axes.set_title("Speedup over training without echoing", loc="left")
    axes.legend(loc="lower right", facecolor="white", edgecolor="none", framealpha=0.8)
