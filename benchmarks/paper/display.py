"""The progress display: a bar with the remaining time, and a line for each run."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from paper.conditions import Job
from paper.train import Result
from paper.tuning import TUNING_SEED


class Display:
    """Prints finished runs above the bar; any thread may call it.

    Parameters
    ----------
    console
        Of rich.
    bars
        Of rich, in estimated seconds.
    total_seconds
        The estimate for everything.
    """

    def __init__(self, console: Any, bars: Any, total_seconds: float) -> None:
        self._lock = threading.Lock()
        self._console = console
        self._bars = bars
        self._task = bars.add_task("training", total=total_seconds)
        self._runs = 0

    def finished(self, job: Job, result: Result, *, known: bool) -> None:
        """Print a line, unless the run was known from an earlier session."""
        with self._lock:
            self._runs += 1
            self._bars.update(self._task, description=f"{self._runs} runs")
            if not known:
                self._console.print(line(job, result), soft_wrap=True, markup=False)

    def passed(self, seconds: float) -> None:
        """Advance the bar."""
        self._bars.advance(self._task, seconds)


def line(job: Job, result: Result) -> str:
    """Describe a finished run."""
    seed = "tuning" if job.seed == TUNING_SEED else f"seed {job.seed}"
    what = f"{job.condition}, {seed}, rate {job.rate:g}"
    if job.goal.target is None:
        end = f"{result.held_out:.4f} at the end"
    elif result.reached:
        end = f"{result.fresh:,.0f} fresh, {result.steps:,.0f} steps"
    else:
        end = f"given up at {result.held_out:.4f}"
    slow = f", over the network {result.seconds:.1f} s" if job.timed else ""
    return f"{what}: {end}{slow} ({result.wall_seconds:.0f} s)"


@contextlib.contextmanager
def shown(total_seconds: float) -> Iterator[Display]:
    """Show progress on stderr while the context lasts."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    bars = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left:"),
        progress.TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        disable=not sys.stderr.isatty(),
    )
    with bars:
        yield Display(console, bars, total_seconds)
