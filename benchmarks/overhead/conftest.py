"""Runs the measurements of `pyecho.bench` under pytest-benchmark and writes what they gave.

After the run, benchmarks/results/overhead-<processor>.json, .md and .svg hold every row with its
limit. `make bench` runs all of it; `make bench BENCH_ARGS="-k gather"` some of it, and then the
names of the files end in -partial.
"""

from __future__ import annotations

import datetime
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyecho import info
from pyecho.arguments import positive_int
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
        "--rounds", type=positive_int, default=7, help="how often each contestant runs (default: 7)"
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
    try:
        config.getoption("results").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise pytest.UsageError(f"{error}; see --results") from None
    facts = info.collect()
    facts["kernel"] = platform.release()
    facts["date"] = datetime.date.today().isoformat()
    facts["rounds"] = config.getoption("rounds")
    name = facts["cpu"] or facts["system"]
    report = Report(f"What echoing costs on {name}", f"overhead-{slug(str(name))}", facts)
    report.note(
        "ratios of gather, put and rings are speeds: above 1, pyecho is faster than the limit; all "
        "other ratios are times: below 1, it is"
    )
    report.note("half as many rounds, rounded up, for Eq. 1")
    config.stash[REPORT] = report


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Mark a part as such."""
    items[0].config.stash[REPORT].partial = True


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


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the files, unless nothing was measured."""
    report = session.config.stash[REPORT]
    whole = [Path(argument).resolve() for argument in session.config.args] == [HERE]
    if exitstatus != 0 or not whole:
        report.partial = True
    if report.sections:
        folder = session.config.getoption("results")
        paths = report.write(folder)
        figure = folder / f"{report.name}.svg"
        if write_figure(report, figure):
            paths.append(figure)
        print("\n" + report.as_markdown())
        print("\n".join(map(str, paths)))
