"""The table that ``pyecho bench`` prints: 60 columns are enough, and names wrap at words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from pyecho.bench.formatting import number, spread
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample

_HEADINGS = ("measured", "limit", "ratio", "target")


def print_table(rows: Sequence[Row], facts: dict[str, Any], console: Console | None = None) -> None:
    """Print every row with its limit, and the measured machine.

    A row has a line for its name, which wraps at words, and a line for its numbers.
    """
    console = console or Console(highlight=False)
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
