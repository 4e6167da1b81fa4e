"""The table that ``pyecho bench`` prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pyecho.bench.formatting import number, spread
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample


def print_table(rows: Iterable[Row], facts: dict[str, Any], console: Console | None = None) -> None:
    """Print every row with its limit, and the machine that it holds for."""
    console = console or Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for heading in ("measured", "limit", "ratio"):
        table.add_column(heading, justify="right")
    table.add_column("target")
    for row in rows:
        table.add_row(
            row.what,
            _median(row.measured, row.unit),
            _median(row.limit, row.unit) + (f"\n{row.limit_name}" if row.limit_name else ""),
            spread(row.compared()).replace(" [", "\n["),
            row.target,
        )
    console.print(table)
    console.print(
        "Medians of rounds in which all took turns; ratios with [lowest, highest].\n"
        f"{facts['cpu'] or facts['system']}, {facts['cores']} cores, {facts['python']}, "
        f"pyecho {facts['pyecho']}",
        markup=False,
        soft_wrap=True,
    )


def _median(sample: Sample | None, unit: str) -> str:
    return "" if sample is None else f"{number(sample.median)} {unit}"
