"""Shared parts of benchmarks: samples of interleaved rounds, and reports of them."""

import json

import pytest

from pyecho.bench.row import Row, number, pooled
from pyecho.bench.sampling import Sample, interleaved, steps_of


class Progress:
    def __init__(self):
        self.advanced = []

    def begin(self, name, steps):
        pass

    def advance(self, what):
        self.advanced.append(what)


def test_ratios_are_those_of_rounds():
    sample, other = Sample((2.0, 9.0, 4.0)), Sample((1.0, 3.0, 8.0))
    assert (sample.median, sample.low, sample.high) == (4.0, 2.0, 9.0)
    assert (sample / other).values == (2.0, 3.0, 0.5)
    assert sample.at_most(other).values == (1.0, 3.0, 4.0)
    assert sample.at_least(other).values == (2.0, 9.0, 8.0)
    assert sample.times(2).values == (4.0, 18.0, 8.0)


def test_contestants_take_turns_and_the_first_round_is_not_counted():
    order, progress = [], Progress()

    def contestant(name):
        def measure():
            order.append(name)
            return float(len(order))

        return measure

    samples = interleaved(2, {"a": contestant("a"), "b": contestant("b")}, progress)
    assert order == progress.advanced == ["b", "a", "a", "b", "b", "a"]
    assert samples["a"].values == (3.0, 6.0)
    assert samples["b"].values == (4.0, 5.0)
    assert len(order) == steps_of(2, 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.01234, "0.0123"), (1.0, "1.00"), (23.46, "23.5"), (4321, "4,321")],
)
def test_numbers_have_three_digits(value, text):
    assert number(value) == text


def test_a_report_has_every_row_in_both_files(tmp_path):
    from common.report import Report, slug

    assert slug("NVIDIA H100 80GB HBM3") == "nvidia-h100-80gb-hbm3"
    report = Report("pyecho on a GPU", "gpu-nvidia-h100-80gb-hbm3", {"cores": 16})
    measured, limit = Sample((9.0, 10.0, 11.0)), Sample((10.0, 10.0, 10.0))
    report.add("Link", [Row("copy | all", measured, "GB/s", limit, "raw", target=">= 0.97")])
    report.add("Link", [Row("alone", measured, "s")])
    report.note("a remark")
    as_json, as_markdown = report.write(tmp_path / "results")
    assert as_json.name == "gpu-nvidia-h100-80gb-hbm3.json"
    table = as_markdown.read_text()
    for cell in ("copy \\| all", "10.0 GB/s [9.00, 11.0]", "1.00 [0.900, 1.10]", ">= 0.97"):
        assert f"| {cell} |" in table
    assert "a remark" in table
    rows = json.loads(as_json.read_text())["rows"]
    assert [row["what"] for row in rows] == ["copy | all", "alone"]
    assert rows[0]["ratio"]["values"] == [0.9, 1.0, 1.1]
    assert rows[1]["limit"] is None


def test_rows_of_several_runs_become_the_medians_of_the_runs():
    runs = [
        Row("copy", Sample((1.0, 2.0, 9.0)), "s", Sample((1.0, 1.0, 3.0)), "raw"),
        Row("copy", Sample((4.0, 4.0, 4.0)), "s", Sample((1.0, 1.0, 1.0)), "raw", target="<= 2"),
    ]
    assert pooled(runs[:1]) is runs[0]
    row = pooled(runs)
    assert (row.measured.values, row.limit.values) == ((2.0, 4.0), (1.0, 1.0))
    assert row.compared().values == (2.0, 4.0)  # of the ratios 1, 2 and 3 of the rounds, and of 4
    assert row.target == "<= 2"
    assert row.as_json()["runs"][0]["ratio"] == [1.0, 2.0, 3.0]
    assert pooled([Row("alone", Sample((1.0,)), "s")] * 2).compared() is None
