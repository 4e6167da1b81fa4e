"""Runs the measurements of `pyecho.bench` under pytest-benchmark and writes the results.

Everything is measured in several runs, one after the other. Two runs of a row are minutes apart, so
their range shows how much the machine varies. At the end, benchmarks/results/
overhead-<processor>.json, .md and .svg contain every row with its limit, the commit, and the
numbers of runs and rounds. `make bench` runs everything; `make bench BENCH_ARGS="-k gather"` runs a
part, and then the names of the files end in -partial.
"""

from __future__ import annotations

import datetime
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyecho.bench.commit import commit_of
from pyecho.bench.row import Row, pooled
from pyecho.tools import info
from pyecho.tools.arguments import positive_int

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common.figure import write_figure  # noqa: E402
from common.report import Report, slug  # noqa: E402


class NoProgress:
    """Shows nothing, because pytest shows the progress."""

    def begin(self, name: str, steps: int) -> None:
        """Do nothing."""

    def advance(self, what: str) -> None:
        """Do nothing."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `make bench`."""
    parser.addoption(
        "--runs", type=positive_int, default=3, help="how often all is measured (default: 3)"
    )
    parser.addoption(
        "--rounds",
        type=positive_int,
        default=3,
        help="how often each contestant takes its turn in a run (default: 3)",
    )
    parser.addoption(
        "--results",
        type=Path,
        default=HERE.parent / "results",
        help="where tables and figures go (default: benchmarks/results)",
    )


REPORT = pytest.StashKey[Report]()
MEASURED = pytest.StashKey[dict[tuple[str, str, str], list[Row]]]()
"""The rows of all runs, by section, measurement and limit."""


def pytest_configure(config: pytest.Config) -> None:
    """Begin the report."""
    try:
        config.getoption("results").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise pytest.UsageError(f"{error}; see --results") from None
    facts = info.collect()
    facts["commit"] = commit_of(HERE.parents[1])
    facts["kernel"] = platform.release()
    facts["date"] = datetime.date.today().isoformat()
    facts["runs"] = config.getoption("runs")
    facts["rounds"] = config.getoption("rounds")
    name = facts["cpu"] or facts["system"]
    report = Report(f"What echoing costs on {name}", f"overhead-{slug(str(name))}", facts)
    report.note(
        "ratios of gather, put and rings are speeds: above 1, pyecho is faster than the limit; all "
        "other ratios are times: below 1, it is"
    )
    report.note("half as many rounds, rounded up, for Eq. 1")
    report.runs = facts["runs"]
    config.stash[REPORT] = report
    config.stash[MEASURED] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each run. The scope puts all tests of a run before those of the next."""
    if "run" in metafunc.fixturenames:
        runs = range(1, metafunc.config.getoption("runs") + 1)
        metafunc.parametrize("run", runs, ids="run{}".format, scope="session")


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Mark a partial run."""
    items[0].config.stash[REPORT].partial = True


@pytest.fixture
def rounds(pytestconfig: pytest.Config) -> int:
    """How often each contestant runs."""
    return int(pytestconfig.getoption("rounds"))


Measured = Callable[..., list[Row]]


@pytest.fixture
def measured(benchmark: Any, pytestconfig: pytest.Config, run: int) -> Measured:
    """Take a measurement once, keep its rows for the report, and return them.

    The contestants take turns inside the measurement, which times them. pytest-benchmark times the
    whole measurement.
    """

    def measure(section: str, measurement: Callable[[NoProgress], list[Row]]) -> list[Row]:
        rows: list[Row] = benchmark.pedantic(measurement, args=(NoProgress(),), rounds=1)
        benchmark.group = section
        benchmark.extra_info["rows"] = [row.as_json() for row in rows]
        kept = pytestconfig.stash[MEASURED]
        for row in rows:
            kept.setdefault((section, row.what, row.limit_name), []).append(row)
        return rows

    return measure


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the files, unless nothing was measured."""
    report = session.config.stash[REPORT]
    whole = [Path(argument).resolve() for argument in session.config.args] == [HERE]
    if exitstatus != 0 or not whole:
        report.partial = True
    for (section, _, _), rows in session.config.stash[MEASURED].items():
        report.add(section, [pooled(rows)])
    if report.sections:
        folder = session.config.getoption("results")
        paths = report.write(folder)
        figure = folder / f"{report.name}.svg"
        if write_figure(report, figure):
            paths.append(figure)
        print("\n" + report.as_markdown())
        print("\n".join(map(str, paths)))
