"""Ratios that peers and paper give for known times and runs."""

import math
from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")


class Peer:
    """A contestant that makes so many batches in a second with one thread, and twice with two."""

    def __init__(self, rate, *, uses=(4, 4), fails=False):
        self.rate = rate
        self.uses = uses
        self.fails = fails

    def ask(self, do, **arguments):
        from peers.process import WorkerFailed

        if do == "prepare":
            self.threads = arguments["work"]["threads"]
        if do == "measure" and self.fails:
            raise WorkerFailed("out of memory")
        seconds = arguments.get("batches", 0) / self.rate / getattr(self, "threads", 1)
        found = {"exact": len(set(self.uses)) == 1, "uses": self.uses, "distinct": 1, "mixing": 0.3}
        return {"seconds": seconds, "idle_cpu_share": None, **found}


def test_peers_are_compared_round_by_round_if_they_keep_their_promises():
    from peers.measuring import measure
    from peers.roster import Contestant
    from peers.workload import Work

    processes = {
        "ours": Peer(1000.0),
        "half": Peer(500.0),
        "inexact": Peer(1000.0, uses=(3, 5)),
        "fails": Peer(1000.0, fails=True),
    }
    work = Work("small", "examples", (64,), rows=1024, pool=512, batch=128, threads=2)
    contestants = [Contestant(name, name, "m", "f", tuned=True) for name in processes]
    outcome = measure(work, processes, contestants, rounds=3, seconds=1.0)
    assert outcome.rate("ours").values == pytest.approx((2 * 1000.0 * 128,) * 3)
    assert outcome.faster("ours", "half").values == pytest.approx((2.0,) * 3)
    failures = [outcome.results[name].failure for name in processes]
    assert failures == ["", "", "examples were used 3 to 5 times, not 4", "out of memory"]


def result(fresh, reached=True):
    from paper.train import Point, Result

    curve = [Point(20, 700, 0.5, 0.3)]
    return Result(reached, fresh, 0.9 * fresh, 50.0, 10.0, 0.3, 0.01, 0.06, 11.0, curve)


@pytest.mark.parametrize("missed", [None, "after", "baseline"])
def test_ratios_of_the_paper_are_taken_seed_by_seed_and_only_if_every_seed_got_there(missed):
    from paper.experiments import entries
    from paper.plan import planned
    from paper.summary import findings, marks

    needed = {"baseline": 1000, "batch": 900, "after": 700, "before": 600}

    def name_of(condition):
        return "baseline" if condition.factor == 1 else condition.variant

    def results(condition, entry):
        name = name_of(condition)
        runs = [result(needed[name] + extra) for extra in (-10, 0, 20)]
        return [*runs[:2], result(math.nan, reached=False)] if name == missed else runs

    every = entries(("3",), full=False)
    costs = {setting: {0: 1.0, 1: math.inf} for setting in planned(every, 3).tuned}
    found = marks(every, results, costs)
    for mark in found:
        name = name_of(mark.entry.condition)
        if missed in (name, "baseline"):
            assert mark.measured is None
        else:
            expected = [(needed[name] + extra) / (1000 + extra) for extra in (-10, 0, 20)]
            assert list(mark.measured.values) == pytest.approx(expected)
    said = " ".join(findings(found))
    assert ("before needs fewer fresh examples than after (0.60, 0.70)" in said) == (not missed)


def test_adaptive_factor_leaves_neither_side_waiting_while_the_source_drifts():
    import numpy as np
    from paper import drift
    from paper.conditions import Condition

    class Numbers:
        def __init__(self):
            self.arrays = {"number": np.arange(1000)}

        def orders(self, seed):
            while True:
                yield from range(1000)

        def augment(self, batch, rng):
            return batch

    def after_forty_minutes(variant, factor):
        condition = Condition("fashion", variant, factor, 8, 80, drifts=True)
        loader = drift.DriftingLoader(Numbers(), condition, seed=1)
        next(batch for batch in loader.last if loader.clock() > 2400)
        return loader.fresh, loader.waited

    read_at_most, _ = after_forty_minutes("before", 1)  # which never holds up the source
    read, waited = after_forty_minutes("adaptive", 8)
    assert read > 0.99 * read_at_most
    assert waited < 24
    for factor in (2, 4, 8):
        read, waited = after_forty_minutes("before", factor)
        assert read < 0.9 * read_at_most or waited > 240
