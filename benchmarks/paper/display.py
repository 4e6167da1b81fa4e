"""The progress of training: a line for each finished run, with an estimate of what remains."""

from __future__ import annotations

import sys
import threading
import time

from paper.conditions import Job
from paper.train import Result
from paper.tuning import TUNING_SEED


class Display:
    """Prints finished runs on stderr; any thread may call it.

    Parameters
    ----------
    total_seconds
        The estimate for everything.
    """

    def __init__(self, total_seconds: float) -> None:
        self._lock = threading.Lock()
        self._total = total_seconds
        self._done = 0.0
        self._began = time.monotonic()

    def finished(self, job: Job, result: Result, *, known: bool) -> None:
        """Print a line, unless the run was known from an earlier session."""
        if not known:
            with self._lock:
                print(f"{self._progress()} {line(job, result)}", file=sys.stderr, flush=True)

    def passed(self, seconds: float) -> None:
        """Count estimated seconds of work as done."""
        with self._lock:
            self._done += seconds

    def _progress(self) -> str:
        minutes = (time.monotonic() - self._began) / 60
        return f"{self._done / self._total:4.0%} {minutes:4.0f} min"


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
