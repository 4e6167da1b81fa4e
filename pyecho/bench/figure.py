"""A figure of the ratios to the limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from pyecho.bench.formatting import number
from pyecho.bench.row import Row


def write_figure(rows: Sequence[Row], facts: dict[str, Any], path: Path) -> None:
    """Draw one line for each row that has a ratio."""
    drawn = [(row, ratio) for row in rows if (ratio := row.compared()) is not None][::-1]
    figure = Figure(figsize=(9, 1.2 + 0.42 * len(drawn)), layout="constrained")
    axes = figure.subplots()
    for height, (row, ratio) in enumerate(drawn):
        axes.plot([ratio.low, ratio.high], [height, height], color="0.6", linewidth=3)
        axes.plot(ratio.median, height, "o", color="C0")
        text = number(ratio.median) + (f"  ({row.target})" if row.target else "")
        axes.annotate(
            text, (ratio.high, height), (6, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.axvline(1.0, color="0.3", linewidth=1)
    axes.set_xscale("log")
    axes.margins(x=0.25)
    axes.set_yticks(
        range(len(drawn)), [f"{row.what}\nagainst {row.limit_name}" for row, _ in drawn], fontsize=8
    )
    axes.set_xlabel("ratio to the limit in the same run: median and range of the rounds")
    axes.set_title(f"{facts['cpu'] or facts['system']}, {facts['cores']} cores", fontsize=9)
    figure.savefig(path, dpi=150)
