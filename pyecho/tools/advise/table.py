"""The table that ``pyecho advise`` prints."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from pyecho.tools.advise.model import Advice

_BAR = 24


def print_table(advice: Advice, console: Console | None = None) -> None:
    """Print the prediction for each factor, then the limit and the remedy.

    A bar shows the busy share of the accelerator.
    """
    console = console or Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("e", "steps/s", f"{advice.steps:,} steps", "idle"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("accelerator", no_wrap=True)
    for each in advice.predictions:
        idle = each.idle_share
        busy = 0 if idle is None else round(_BAR * (1 - idle))
        table.add_row(
            f"{each.factor:g}",
            f"{each.steps_per_second:,.1f}",
            f"{each.seconds:,.1f} s",
            "-" if idle is None else f"{idle:.0%}",
            "" if idle is None else "█" * busy + "░" * (_BAR - busy),
        )
    console.print(table)
    console.print(str(advice), markup=False, soft_wrap=True)
