"""A progress bar if rich is installed, otherwise a line for each measurement."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from pyecho.bench.sampling import Progress


class Lines:
    """Prints the name and the duration of each measurement."""

    def __init__(self) -> None:
        self._began = 0.0
        self._left = 0

    def begin(self, name: str, steps: int) -> None:
        """Start a line."""
        self._began = time.monotonic()
        self._left = steps
        print(f"{name} ...", end=" ", file=sys.stderr, flush=True)

    def advance(self, what: str) -> None:
        """End the line with the last step."""
        self._left -= 1
        if self._left == 0:
            print(f"{time.monotonic() - self._began:.1f} s", file=sys.stderr, flush=True)


class Bars:
    """A bar for each measurement."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._task: Any = None
        self._name = ""

    def begin(self, name: str, steps: int) -> None:
        """Start a bar."""
        self._name = name
        self._task = self._bars.add_task(name, total=steps)

    def advance(self, what: str) -> None:
        """Advance the bar."""
        self._bars.update(self._task, advance=1, description=f"{self._name}: {what}")


@contextlib.contextmanager
def shown() -> Iterator[Progress]:
    """Show progress on stderr while the context lasts."""
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        yield Lines()
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines()
        return
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=None),  # the rest of the line
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=console) as bars:
        yield Bars(bars)
