"""The table that ``pyecho bench`` prints, and its figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyecho.bench.row import Row, number, spread
from pyecho.bench.sampling import Sample

_HEADINGS = ("measured", "limit", "ratio", "target")


def print_table(rows: Sequence[Row], facts: dict[str, Any]) -> None:
    """Print every row with its limit, and the measured machine. 60 columns are enough.

    A row has a line for its name, which wraps at words, and a line for its numbers.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    numbers = [_numbers(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *numbers, strict=True)]
    console.print(Text(_aligned(_HEADINGS, widths), style="bold"))
    for row, cells in zip(rows, numbers, strict=True):
        name = Text(row.what)
        if row.limit_name:
            name.append(f", against {row.limit_name}", style="dim")
        console.print(name)
        console.print(Text(_aligned(cells, widths)))
    commit = f" ({facts['commit']})" if facts["commit"] else ""
    console.print(
        "\nMedians of rounds in which all took turns; ratios with [lowest, highest].\n"
        f"{facts['cpu'] or facts['system']}, {facts['cores']} cores, {facts['python']}, "
        f"pyecho {facts['pyecho']}{commit}",
        markup=False,
    )


def _numbers(row: Row) -> tuple[str, ...]:
    return (
        _median(row.measured, row.unit),
        _median(row.limit, row.unit),
        spread(row.compared()),
        row.target,
    )


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    measured, limit, ratio, target = widths
    text = f"{cells[0]:>{measured}}  {cells[1]:>{limit}}  {cells[2]:<{ratio}}  {cells[3]:<{target}}"
    return f"  {text}".rstrip()


def _median(sample: Sample | None, unit: str) -> str:
    return "" if sample is None else f"{number(sample.median)} {unit}"


def write_figure(rows: Sequence[Row], facts: dict[str, Any], path: Path) -> None:
    """Draw one line for each row that has a ratio."""
    from matplotlib.figure import Figure

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
