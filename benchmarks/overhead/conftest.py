"""Runs the measurements of `pyecho.bench` under pytest-benchmark and writes what they gave.

After the run, benchmarks/results/overhead-<processor>.json, .md and .svg hold every row with its
limit. `make bench` runs all of it; `make bench BENCH_ARGS="-k gather"` some of it.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyecho import info
from pyecho.bench.row import Row

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common.report import Report, slug  # noqa: E402
from overhead.figure import write_figure  # noqa: E402


class NoProgress:
    """pytest shows how far it is."""

    def begin(self, name: str, steps: int) -> None:
        """Do nothing."""

    def advance(self, what: str) -> None:
        """Do nothing."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make bench` can be told."""
    parser.addoption(
        "--rounds", type=int, default=7, help="how often each contestant runs (default: 7)"
    )
    parser.addoption(
        "--results",
        type=Path,
        default=HERE.parent / "results",
        help="where tables and figures go (default: benchmarks/results)",
    )


REPORT = pytest.StashKey[Report]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin the report."""
    facts = info.collect()
    facts["date"] = datetime.date.today().isoformat()
    name = facts["cpu"] or facts["system"]
    config.stash[REPORT] = Report(
        f"What echoing costs on {name}", f"overhead-{slug(str(name))}", facts
    )


@pytest.fixture
def rounds(pytestconfig: pytest.Config) -> int:
    """How often each contestant runs."""
    return int(pytestconfig.getoption("rounds"))


Measured = Callable[..., list[Row]]


@pytest.fixture
def measured(benchmark: Any, pytestconfig: pytest.Config) -> Measured:
    """Take a measurement once, keep its rows for the report, and return them.

    The contestants take turns inside of it, and are timed there; what pytest-benchmark times is
    the whole.
    """

    def measure(section: str, measurement: Callable[[NoProgress], list[Row]]) -> list[Row]:
        rows: list[Row] = benchmark.pedantic(measurement, args=(NoProgress(),), rounds=1)
        benchmark.group = section
        benchmark.extra_info["rows"] = [row.as_json() for row in rows]
        pytestconfig.stash[REPORT].add(section, rows)
        return rows

    return measure


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the files, unless nothing was measured."""
    report = session.config.stash[REPORT]
    if report.sections:
        folder = session.config.getoption("results")
        paths = [*report.write(folder), folder / f"{report.stem}.svg"]
        write_figure(report, paths[-1])
        print("\n" + report.as_markdown())
        print("\n".join(map(str, paths)))
