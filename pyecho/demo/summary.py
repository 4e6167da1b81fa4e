"""The numbers that the demonstration ends with: plain arithmetic on finished runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .experiment import Outcome
    from .train import Run

PAPER_SPEEDUPS = {1: 1.0, 2: 1.80, 3: 2.43, 4: 3.06, 5: 3.25}


@dataclass(frozen=True)
class Spread:
    """A median over the seeds, with the lowest and the highest value."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """All runs with one echo factor, medians over the seeds.

    Speedups and reductions are relative to the baseline's median. They are None unless every run
    on both sides reached the target, because a median over the successful runs would be biased.

    Parameters
    ----------
    factor
        The echo factor.
    runs, reached
        How many runs there were, and how many of them reached the target.
    fresh, steps, seconds
        Over the runs that reached the target; None if there is none.
    reduction
        Fresh examples of the baseline for each fresh example taken here.
    speedup
        Seconds of the baseline for each second needed here.
    ratio
        R = t_up / t_down as measured: t_up of the calibration over the median t_down of the runs.
    allowed
        The largest speedup that Eq. 1 allows at this factor and R.
    """

    factor: float
    runs: int
    reached: int
    fresh: float | None
    steps: float | None
    seconds: Spread | None
    reduction: float | None
    speedup: Spread | None
    ratio: float
    allowed: float

    @property
    def complete(self) -> bool:
        """True if every run reached the target."""
        return self.reached == self.runs


def allowed_speedup(factor: float, ratio: float) -> float:
    """Return the largest speedup that Eq. 1 of the paper allows.

    One upstream step and `e` downstream steps take ``max(t_up, e * t_down)``. At best, an echoed
    use is worth as much as a fresh one, and `e` times fewer upstream steps are needed. `ratio`:
    R = t_up / t_down.
    """
    return factor * max(ratio, 1.0) / max(ratio, factor)


def summarize(runs: Sequence[Run], upstream_seconds: float) -> list[Row]:
    """Condense the runs into one row for every factor, in ascending order, the baseline's first.

    `upstream_seconds`: t_up, measured while the source never waited. During a run with a high
    factor the source sometimes waits for the trainer, so its speed cannot be measured then.
    """
    rows: list[Row] = []
    for factor in sorted({run.factor for run in runs}):
        group = [run for run in runs if run.factor == factor]
        reached = [run for run in group if run.reached]
        fresh = median(run.fresh for run in reached) if reached else None
        seconds = _spread([run.seconds for run in reached])
        ratio = upstream_seconds / median(run.downstream_seconds for run in group)
        base_fresh, base_seconds = (rows[0].fresh, rows[0].seconds) if rows else (fresh, seconds)
        comparable = len(reached) == len(group) and (not rows or rows[0].complete)
        reduction = speedup = None
        if comparable and fresh and seconds and base_fresh and base_seconds:
            reduction = base_fresh / fresh
            speedup = Spread(
                median=base_seconds.median / seconds.median,
                low=base_seconds.median / seconds.high,
                high=base_seconds.median / seconds.low,
            )
        rows.append(
            Row(
                factor=factor,
                runs=len(group),
                reached=len(reached),
                fresh=fresh,
                steps=median(run.steps for run in reached) if reached else None,
                seconds=seconds,
                reduction=reduction,
                speedup=speedup,
                ratio=ratio,
                allowed=allowed_speedup(factor, ratio),
            )
        )
    return rows


def conclusion(rows: Sequence[Row], target: float) -> str:
    """Return the conclusion from the runs, in a sentence or two."""
    goal = f"{target:.1%} test accuracy"
    compared = [(row.speedup.median, row) for row in rows[1:] if row.speedup is not None]
    missed = sum(row.runs - row.reached for row in rows)
    sentences = []
    if compared:
        speedup, best = max(compared, key=lambda pair: pair[0])
        base = rows[0]
        assert base.seconds is not None
        assert best.seconds is not None
        sentences.append(
            f"With e = {best.factor:g} the network reached {goal} {speedup:.2f} times as fast as "
            f"without echoing ({best.seconds.median:.1f} s instead of {base.seconds.median:.1f} s),"
            f" from {best.fresh:,.0f} fresh examples instead of {base.fresh:,.0f}. "
            f"At the R = {best.ratio:.2f} of these runs, Eq. 1 allows {best.allowed:.2f} times."
        )
    # Compares the rounded values, because the reader sees only these.
    above = [row for value, row in compared if round(value, 2) > round(row.allowed, 2)]
    if above:
        factors = " and ".join(f"e = {row.factor:g}" for row in above)
        sentences.append(
            f"With {factors} the speedup is above what Eq. 1 allows: Eq. 1 bounds the time per "
            "step, while the number of steps varies with the seed. "
            f"Raise --seeds above {rows[0].runs} to even that out."
        )
    if missed:
        total = sum(row.runs for row in rows)
        sentences.append(
            f"{missed} of {total} runs did not reach {goal}: lower --target, or raise --max-steps."
        )
    return " ".join(sentences) or f"Every run reached {goal}; there is no echo factor to compare."


def as_json(outcome: Outcome, machine: dict[str, Any]) -> dict[str, Any]:
    """Return all raw numbers as plain JSON types, without paths or names of the user's own."""
    plan, images = outcome.plan, outcome.images
    document = {
        "machine": machine,
        "images": {
            "origin": "scikit-learn digits" if plan.folder is None else "folder",
            "classes": len(images.classes),
            "shape": list(images.shape),
            "train": len(images.train),
            "test": len(images.test),
        },
        "plan": {
            "factors": list(plan.factors),
            "seeds": plan.seeds,
            "target": plan.target,
            "max_steps": plan.max_steps,
        },
        "calibration": asdict(outcome.calibration),
        "paper_speedups": {str(factor): value for factor, value in PAPER_SPEEDUPS.items()},
        "summary": [
            asdict(row) for row in summarize(outcome.runs, outcome.calibration.upstream_seconds)
        ],
        "runs": [asdict(run) for run in outcome.runs],
    }
    finite: dict[str, Any] = _finite(document)
    return finite


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread(median(values), min(values), max(values)) if values else None


def _finite(value: Any) -> Any:
    """Replace values that JSON cannot express (NaN, infinity) by None."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
