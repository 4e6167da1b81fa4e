"""Ratios that peers, paper and the gate give for known times and runs, and runs that are kept."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("torch")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


def script(name):
    """Return a script as a module, where a package has the same name."""
    spec = importlib.util.spec_from_file_location(f"{name}_script", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("missed", [None, "runs", "baseline"])
def test_ratios_of_the_paper_are_taken_seed_by_seed_and_only_if_every_seed_got_there(missed):
    paper = script("paper")
    baseline, _, after, *_ = paper.entries(("3",), full=False)
    assert baseline.condition == after.baseline

    def runs(fresh, reached):
        found = [{"reached": True, "fresh": fresh + extra} for extra in (-10, 0, 20)]
        return found if reached else [*found[:2], {"reached": False}]

    row = paper.row_of(after, runs(700, missed != "runs"), runs(1000, missed != "baseline"))
    if missed:
        assert "with 2 of 3 seeds" in row
    else:
        expected = [(700 + extra) / (1000 + extra) for extra in (-10, 0, 20)]
        assert list(row.compared().values) == pytest.approx(expected)


def test_gate_tells_halves_that_differ_and_targets_that_are_missed_twofold():
    from gate import verdicts

    def row(ratio, target=""):
        median = None if ratio is None else {"median": ratio}
        return {"what": "a", "limit_name": "b", "ratio": median, "target": target}

    quiet = [[row(0.5, "<= 0.5"), row(0.6, ">= 0.9"), row(9.0, "<= 25 ns"), row(None)]] * 2
    assert verdicts(quiet) == []
    assert len(verdicts([[row(0.5)], [row(1.1)]])) == 1
    assert len(verdicts([[row(1.1, "<= 0.5")], [row(1.2, "<= 0.5")]])) == 1
    assert len(verdicts([[row(0.4, ">= 0.9")], [row(0.3, ">= 0.9")]])) == 1


def test_runs_are_kept_and_only_those_that_are_missing_are_made(tmp_path, monkeypatch):
    from common import results_of

    made = tmp_path / "made"
    code = f"def run(number):\n    print(file=open({str(made)!r}, 'a'))\n    return number**2\n"
    (tmp_path / "some_runs.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    from some_runs import run

    jobs = [(0,), (1,), (2,)]
    found = results_of(run, jobs, tmp_path)
    assert found == {(0,): 0, (1,): 1, (2,): 4}
    (kept,) = (tmp_path / "runs").iterdir()
    text = kept.read_text()
    kept.write_text(text[: len(text) - 3])  # as an interrupt leaves it
    assert results_of(run, jobs, tmp_path) == found
    assert len(made.read_text()) == len(jobs) + 1
    assert kept.read_text() == text
