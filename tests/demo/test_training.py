"""A run ends where it should, and the rows of runs hold what was measured."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("matplotlib")

from pyecho.demo.report import summarize
from pyecho.demo.train import Point, Run

UPSTREAM_SECONDS = 0.06


@pytest.fixture
def runs():
    """Three seeds without echoing, then three with e = 3."""
    return [
        Run(factor, seed, True, seconds, 40, int(100 * seconds), 0.01, [Point(seconds, 40, 0.96)])
        for factor, times in ((1, (10.0, 14.0, 12.0)), (3, (4.0, 5.0, 8.0)))
        for seed, seconds in enumerate(times, 1)
    ]


def test_rows_hold_medians_over_the_seeds_in_order_of_the_factor(runs):
    base, echoed = summarize(runs[::-1], UPSTREAM_SECONDS)
    assert (base.factor, echoed.factor) == (1, 3)
    assert (base.runs, base.reached) == (3, 3)
    assert (base.fresh, echoed.fresh) == (1200, 500)
    assert sorted(base.seconds.values) == [10.0, 12.0, 14.0]
    assert sorted(echoed.seconds.values) == [4.0, 5.0, 8.0]
    assert (base.speedup, echoed.speedup) == (1.0, 12.0 / 5.0)
    assert echoed.accuracy == 0.96
    assert (echoed.ratio, echoed.allowed) == (pytest.approx(6.0), pytest.approx(3.0))


def test_missed_target_is_counted_and_takes_the_medians_away(runs):
    runs[3].reached = False
    base, echoed = summarize(runs, UPSTREAM_SECONDS)
    assert (echoed.runs, echoed.reached) == (3, 2)
    assert echoed.seconds is echoed.fresh is echoed.steps is echoed.speedup is None
    assert base.speedup is not None
