from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.fixture
def small_work():
    """Return a function that makes work for the peers, small unless it is told otherwise."""
    from peers.workload import Work

    def small_work(**changes):
        small = {"shape": (64,), "rows": 1024, "pool": 512, "factor": 4, "batch": 128, "threads": 2}
        return Work(**{"title": "small", "kind": "examples", **small, **changes})

    return small_work
