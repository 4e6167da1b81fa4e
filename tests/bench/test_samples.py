"""Samples of interleaved rounds: ratios, medians of runs, and how numbers are shown."""

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


def test_sample_ratios_are_those_of_rounds():
    sample, other = Sample((2.0, 9.0, 4.0)), Sample((1.0, 3.0, 8.0))
    assert (sample.median, sample.low, sample.high) == (4.0, 2.0, 9.0)
    assert (sample / other).values == (2.0, 3.0, 0.5)
    assert sample.at_most(other).values == (1.0, 3.0, 4.0)
    assert sample.at_least(other).values == (2.0, 9.0, 8.0)
    assert sample.times(2).values == (4.0, 18.0, 8.0)


def test_interleaved_takes_turns_and_does_not_count_the_first_round():
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


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (0.01234, "0.0123"), (4321, "4,321")])
def test_number_has_three_digits(value, text):
    assert number(value) == text


def test_pooled_rows_are_the_medians_of_the_runs():
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
