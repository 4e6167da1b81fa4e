"""The picture that ``pyecho advise --plot`` draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from pyecho.tools.advise.model import Advice


def write_figure(advice: Advice, path: Path) -> None:
    """Draw the steps per second at each factor, with the busy share of the accelerator."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    times, predictions = advice.times, advice.predictions
    factors = np.linspace(1, predictions[-1].factor, 200)
    axes.plot(factors, [1 / times.period(e) for e in factors], color="0.4", linewidth=1)
    axes.bar(
        [each.factor for each in predictions],
        [each.steps_per_second for each in predictions],
        color=["#f3d9d5" if each.idle_share is not None else "C0" for each in predictions],
        width=0.7,
    )
    busy = [each for each in predictions if each.idle_share is not None]
    for each in busy:
        height = each.steps_per_second * (1 - (each.idle_share or 0.0))
        axes.bar(each.factor, height, color="#2a6f4e", width=0.7)
        axes.annotate(
            f"{1 - (each.idle_share or 0.0):.0%}",
            (each.factor, each.steps_per_second),
            (0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    if advice.full_factor is not None and advice.full_factor <= predictions[-1].factor:
        axes.axvline(advice.full_factor, color="0.4", linestyle=":", linewidth=1)
    axes.set_xticks([each.factor for each in predictions])
    axes.set_xlabel("echo factor e")
    axes.set_ylabel("steps per second")
    axes.set_title("dark: share in which the accelerator is busy" if busy else "", fontsize=9)
    figure.savefig(path, dpi=150)
