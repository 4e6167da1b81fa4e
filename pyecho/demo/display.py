"""The display of the demonstration's progress, and the table at the end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from .experiment import TARGET_RATIO, Calibration, Plan
from .images import ImageSet
from .summary import Row
from .train import BATCH_SIZE, Run


class Display:
    """Show progress: one line per run, and live bars below them in a terminal."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._done = 0
        self._total = plan.seeds * len(plan.factors)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            refresh_per_second=4,
            disable=not self._console.is_terminal,
        )
        self._all: TaskID | None = None
        self._current: TaskID | None = None

    def live(self) -> AbstractContextManager[object]:
        """Return the context in which the bars are alive."""
        return self._progress

    def images_found(self, images: ImageSet) -> None:
        """Print the training data, and that the calibration begins."""
        origin = "Handwritten digits" if self._plan.folder is None else "Your images"
        channels, height, width = images.shape
        self._console.print(
            f"{origin}: {len(images.classes)} classes, {len(images.train):,} images to train on, "
            f"{len(images.test):,} to test on, "
            f"{height} x {width} {'grey' if channels == 1 else 'RGB'} pixels",
            soft_wrap=True,
        )
        self._current = self._progress.add_task("calibrating", total=None, state="")

    def calibrated(self, calibration: Calibration) -> None:
        """Print the speed of both sides, and that the runs begin."""
        down, up = calibration.downstream_seconds, calibration.upstream_seconds
        self._console.print(
            f"Set before training: t_up = {TARGET_RATIO:g} x t_down. Training takes "
            f"t_down = {1e3 * down:.1f} ms for a batch of {BATCH_SIZE}; the line is limited to "
            f"{calibration.bandwidth / 1e3:.0f} kB/s, which makes t_up = {1e3 * up:.1f} ms",
            soft_wrap=True,
        )
        self._console.print(f"Target: {self._plan.target:.1%} test accuracy\n")
        if self._current is not None:
            self._progress.remove_task(self._current)
        self._all = self._progress.add_task("all runs", total=self._total, state="")

    def run_started(self, factor: float, seed: int) -> None:
        """Open a bar that fills up as the test accuracy nears the target."""
        self._current = self._progress.add_task(
            _name(factor, seed), total=self._plan.target, state=""
        )

    def run_tested(self, run: Run) -> None:
        """Advance the bar of the current run."""
        accuracy = run.curve[-1].accuracy
        if self._current is not None:
            self._progress.update(
                self._current,
                completed=min(accuracy, self._plan.target),
                state=f"{accuracy:6.1%}  {run.fresh:,} fresh, {run.steps:,} steps",
            )

    def run_finished(self, run: Run) -> None:
        """Replace the bar by a line with the result."""
        self._done += 1
        accuracy = run.curve[-1].accuracy
        ending = "" if run.reached else ", [red]target not reached[/red]"
        count = f"{self._done:{len(str(self._total))}}/{self._total}"
        self._console.print(
            rf"\[{count}] {_name(run.factor, run.seed)}: {accuracy:.1%} in {run.seconds:5.2f} s, "
            f"{run.fresh:,} fresh examples, {run.steps:,} steps{ending}",
            soft_wrap=True,
        )
        if self._current is not None:
            self._progress.remove_task(self._current)
        if self._all is not None:
            self._progress.update(
                self._all, completed=self._done, state=f"{self._done}/{self._total}"
            )


def _name(factor: float, seed: int) -> str:
    return f"e = {factor:g}, seed {seed}"


def print_table(rows: Sequence[Row], console: Console) -> None:
    """Print the result as a table."""
    several = rows[0].runs > 1
    title = f"Median of {rows[0].runs} seeds (fastest - slowest)" if several else "One seed"
    table = Table(
        title=f"{title}; R = t_up / t_down as measured in the runs",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in (
        "e",
        "fresh\nexamples",
        "steps",
        "seconds\nto target",
        "fewer\nfresh",
        "speedup",
        "Eq. 1\nallows",
        "R",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row.factor:g}",
            "-" if row.fresh is None else f"{row.fresh:,.0f}",
            "-" if row.steps is None else f"{row.steps:,.0f}",
            _seconds(row),
            _times(row.reduction),
            _times(None if row.speedup is None else row.speedup.median),
            _times(row.allowed),
            f"{row.ratio:.2f}",
        )
    console.print(table)


def _seconds(row: Row) -> str:
    if row.seconds is None:
        return f"[red]0 of {row.runs} reached it[/red]"
    text = f"{row.seconds.median:.1f}"
    if row.reached > 1:
        text += f" ({row.seconds.low:.1f} - {row.seconds.high:.1f})"
    if not row.complete:
        text += f" [red]{row.reached} of {row.runs}[/red]"
    return text


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
