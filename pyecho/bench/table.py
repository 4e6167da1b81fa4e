"""The table that ``pyecho bench`` prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pyecho.bench.formatting import spread
from pyecho.bench.row import Row


def print_table(rows: Iterable[Row], facts: dict[str, Any], console: Console | None = None) -> None:
    """Print every row with its limit, and the machine that it holds for."""
    console = console or Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("what", overflow="fold")
    for heading in ("measured", "limit, in the same run", "ratio"):
        table.add_column(heading, justify="right", overflow="fold")
    table.add_column("target", overflow="fold")
    for row in rows:
        limit = f"{row.limit_name}: {spread(row.limit, row.unit)}" if row.limit_name else ""
        table.add_row(
            row.what, spread(row.measured, row.unit), limit, spread(row.compared()), row.target
        )
    console.print(table)
    console.print(
        f"Medians of the rounds [lowest, highest]. {facts['cpu'] or facts['system']}, "
        f"{facts['cores']} cores, Python {facts['python'].split()[-1]}, pyecho {facts['pyecho']}",
        markup=False,
    )
