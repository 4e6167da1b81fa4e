import json
import math
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("PIL")

from pyecho.demo.errors import DemoError
from pyecho.demo.experiment import Calibration, Outcome, Plan
from pyecho.demo.images import ImageSet
from pyecho.demo.summary import Spread, allowed_speedup, as_json, conclusion, summarize
from pyecho.demo.train import Point, Run

UPSTREAM_SECONDS = 0.06


def run(factor, seed, seconds, fresh, reached=True):
    return Run(
        factor=factor,
        seed=seed,
        reached=reached,
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


@pytest.mark.parametrize(
    ("factor", "ratio", "allowed"),
    [(1, 6, 1), (3, 6, 3), (6, 6, 6), (8, 6, 6), (2.5, 6, 2.5), (4, 0.5, 1), (1, 0.5, 1)],
)
def test_the_allowed_speedup_is_the_factor_up_to_r_and_r_from_there(factor, ratio, allowed):
    assert allowed_speedup(factor, ratio) == pytest.approx(allowed)


def test_the_allowed_speedup_follows_eq_1():
    up, down, factor = 0.05, 0.02, 4
    time_per_use = max(up, factor * down) / factor
    assert allowed_speedup(factor, up / down) == pytest.approx(max(up, down) / time_per_use)


def test_rows_hold_medians_over_the_seeds_in_order_of_the_factor(runs):
    base, echoed = summarize(runs[::-1], UPSTREAM_SECONDS)
    assert (base.factor, echoed.factor) == (1, 3)
    assert (base.runs, base.reached, base.complete) == (3, 3, True)
    assert (base.fresh, echoed.fresh) == (1200, 500)
    assert base.seconds == Spread(12.0, 10.0, 14.0)
    assert echoed.seconds == Spread(5.0, 4.0, 8.0)
    assert echoed.reduction == pytest.approx(1200 / 500)
    assert echoed.ratio == pytest.approx(6.0)
    assert echoed.allowed == pytest.approx(3.0)


def test_speedups_are_against_the_median_of_the_baseline(runs):
    base, echoed = summarize(runs, UPSTREAM_SECONDS)
    assert base.speedup.median == 1.0
    assert echoed.speedup == Spread(12.0 / 5.0, 12.0 / 8.0, 12.0 / 4.0)


def test_a_missed_target_is_counted_and_takes_the_speedup_away(runs):
    runs[3].reached = False
    base, echoed = summarize(runs, UPSTREAM_SECONDS)
    assert (echoed.runs, echoed.reached, echoed.complete) == (3, 2, False)
    assert echoed.seconds == Spread(6.0, 4.0, 8.0)
    assert echoed.speedup is None
    assert echoed.reduction is None
    assert base.speedup is not None
    assert "1 of 6 runs did not reach 96.0% test accuracy" in conclusion([base, echoed], 0.96)


def test_a_missed_baseline_takes_every_speedup_away(runs):
    for baseline in runs[::2]:
        baseline.reached = False
    base, echoed = summarize(runs, UPSTREAM_SECONDS)
    assert base.seconds is base.fresh is base.steps is None
    assert echoed.seconds.median == 5.0
    assert echoed.speedup is None


def test_the_conclusion_names_the_best_factor_and_its_numbers(runs):
    text = conclusion(summarize(runs, UPSTREAM_SECONDS), 0.96)
    assert "With e = 3 the network reached 96.0% test accuracy 2.40 times as fast" in text
    assert "(5.0 s instead of 12.0 s), from 500 fresh examples instead of 1,200" in text
    assert "At the R = 6.00 of these runs, Eq. 1 allows 3.00 times." in text
    assert "above what Eq. 1 allows" not in text


def test_a_speedup_above_eq_1_is_explained(runs):
    for echoed in runs[1::2]:
        echoed.seconds /= 2
    text = conclusion(summarize(runs, UPSTREAM_SECONDS), 0.96)
    assert "4.80 times as fast" in text
    assert "With e = 3 the speedup is above what Eq. 1 allows: Eq. 1 bounds the time per" in text
    assert "number of steps varies with the seed. Raise --seeds above 3" in text


def test_a_speedup_that_only_looks_equal_to_eq_1_is_not_explained(runs):
    for echoed in runs[1::2]:
        echoed.seconds = 12.0 / 3.001
    text = conclusion(summarize(runs, UPSTREAM_SECONDS), 0.96)
    assert "3.00 times as fast" in text
    assert "above what Eq. 1 allows" not in text


def test_the_conclusion_of_the_baseline_alone_claims_nothing(runs):
    assert "no echo factor to compare" in conclusion(summarize(runs[::2], UPSTREAM_SECONDS), 0.96)


def outcome_of(runs, folder=None):
    return Outcome(
        Plan(factors=(1.0, 3.0), seeds=3, target=0.96, max_steps=800, folder=folder),
        ImageSet(folder or Path("somewhere"), ["a", "b"], (1, 16, 16), [], []),
        Calibration(0.01, UPSTREAM_SECONDS, 50_000.0),
        runs,
    )


def test_json_holds_every_run_and_no_path(runs):
    document = as_json(outcome_of(runs, Path("private") / "holiday"), {"cores": 2})
    text = json.dumps(document, allow_nan=False)
    assert len(document["runs"]) == 6
    assert document["runs"][0]["curve"] == [{"seconds": 10.0, "step": 1, "accuracy": 0.96}]
    assert document["summary"][1]["speedup"]["median"] == pytest.approx(2.4)
    assert document["machine"] == {"cores": 2}
    assert "private" not in text
    assert "holiday" not in text


def test_json_has_null_for_what_is_unknown(runs):
    assert math.isnan(runs[0].loader_ratio)
    assert as_json(outcome_of(runs), {})["runs"][0]["loader_ratio"] is None


class TestFigure:
    @pytest.fixture(autouse=True)
    def figure(self):
        pytest.importorskip("matplotlib")
        from pyecho.demo import figure

        return figure

    @pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
    def test_the_suffix_decides_the_format(self, figure, runs, tmp_path, suffix):
        path = tmp_path / f"figure.{suffix}"
        figure.check_format(path)
        figure.write_figure(outcome_of(runs), summarize(runs, UPSTREAM_SECONDS), path)
        start = path.read_bytes()[:8]
        assert start.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])

    def test_it_is_drawn_even_if_no_run_reached_the_target(self, figure, runs, tmp_path):
        for missed in runs:
            missed.reached = False
        rows = summarize(runs, UPSTREAM_SECONDS)
        figure.write_figure(outcome_of(runs), rows, tmp_path / "figure.png")
        assert (tmp_path / "figure.png").stat().st_size > 0

    def test_the_line_of_eq_1_says_what_it_bounds(self, figure, runs):
        axes = figure.Figure().subplots()
        rows = summarize(runs, UPSTREAM_SECONDS)
        figure._draw_speedups(axes, rows, {row.factor: (0, 0, 0, 1) for row in rows})
        labels = [text.get_text() for text in axes.get_legend().get_texts()]
        assert "Eq. 1: bounds the time per step (median R = 6.0)" in labels

    @pytest.mark.parametrize("name", ["figure", "figure.docx"])
    def test_a_format_that_is_unknown_is_reported_early(self, figure, tmp_path, name):
        with pytest.raises(DemoError, match=r"--output .* needs a suffix .*: choose from .*svg"):
            figure.check_format(tmp_path / name)

    def test_a_format_that_lacks_a_program_is_reported_early(self, figure, tmp_path, monkeypatch):
        def fail(*args, **kwargs):
            raise RuntimeError("xelatex not found\nmore")

        monkeypatch.setattr(figure.Figure, "savefig", fail)
        with pytest.raises(DemoError, match=r"pgf, which .* \(xelatex not found\): choose another"):
            figure.check_format(tmp_path / "figure.pgf")
