import json
import math
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("PIL")

from pyecho.demo.experiment import Calibration, Outcome, Plan
from pyecho.demo.images import ImageSet
from pyecho.demo.summary import Spread, as_json, conclusion, summarize
from pyecho.demo.train import Point, Run

UPSTREAM_SECONDS = 0.06


def run(factor, seed, seconds, fresh):
    return Run(
        factor=factor,
        seed=seed,
        reached=True,
        seconds=seconds,
        steps=fresh * factor // 10,
        fresh=fresh,
        downstream_seconds=0.01,
        curve=[Point(seconds, 1, 0.96)],
    )


@pytest.fixture
def runs():
    return [
        run(1, 1, 10.0, 1000),
        run(3, 1, 4.0, 400),
        run(1, 2, 14.0, 1400),
        run(3, 2, 5.0, 500),
        run(1, 3, 12.0, 1200),
        run(3, 3, 8.0, 800),
    ]


def test_rows_hold_medians_over_the_seeds_in_order_of_the_factor(runs):
    base, echoed = summarize(runs[::-1], UPSTREAM_SECONDS)
    assert (base.factor, echoed.factor) == (1, 3)
    assert (base.runs, base.reached, base.complete) == (3, 3, True)
    assert (base.fresh, echoed.fresh) == (1200, 500)
    assert base.seconds == Spread(12.0, 10.0, 14.0)
    assert echoed.seconds == Spread(5.0, 4.0, 8.0)
    assert base.speedup.median == 1.0
    assert echoed.speedup == Spread(12.0 / 5.0, 12.0 / 8.0, 12.0 / 4.0)
    assert echoed.reduction == pytest.approx(1200 / 500)
    assert (echoed.ratio, echoed.allowed) == (pytest.approx(6.0), pytest.approx(3.0))


def test_missed_target_is_counted_and_takes_the_speedup_away(runs):
    runs[3].reached = False
    base, echoed = summarize(runs, UPSTREAM_SECONDS)
    assert (echoed.runs, echoed.reached, echoed.complete) == (3, 2, False)
    assert echoed.seconds == Spread(6.0, 4.0, 8.0)
    assert echoed.speedup is echoed.reduction is None
    assert base.speedup is not None
    assert "1 of 6 runs" in conclusion([base, echoed], 0.96)


def outcome_of(runs, folder=None):
    return Outcome(
        Plan(factors=(1.0, 3.0), seeds=3, target=0.96, max_steps=800, folder=folder),
        ImageSet(folder or Path("somewhere"), ["a", "b"], (1, 16, 16), [], []),
        Calibration(0.01, UPSTREAM_SECONDS, 50_000.0),
        runs,
    )


def test_json_holds_every_run_null_for_what_is_unknown_and_no_path(runs):
    document = as_json(outcome_of(runs, Path("private") / "holiday"), {"cores": 2})
    text = json.dumps(document, allow_nan=False)
    assert len(document["runs"]) == 6
    assert document["runs"][0]["curve"] == [{"seconds": 10.0, "step": 1, "accuracy": 0.96}]
    assert math.isnan(runs[0].loader_ratio)
    assert document["runs"][0]["loader_ratio"] is None
    assert document["summary"][1]["speedup"]["median"] == pytest.approx(2.4)
    assert document["machine"] == {"cores": 2}
    assert "private" not in text
    assert "holiday" not in text
