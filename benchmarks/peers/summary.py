"""The report of a run: a table for each workload, and remarks on each contestant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from peers.measuring import IDLE_CPU_SHARE, Outcome, Result
from peers.roster import BARE, DISTRIBUTION, LIMIT, PYECHO, Contestant
from peers.workloads import Planned
from pyecho.bench.report import Report
from pyecho.bench.row import Row

MICROSECONDS = 1e6


def add_outcome(report: Report, planned: Planned, outcome: Outcome) -> None:
    """Add a workload's table, the fastest first, and a remark for each that failed."""
    batches = outcome.work.kind == "batches"
    limit_name = BARE if batches else LIMIT
    limit = outcome.rate(limit_name)
    done = [result for result in outcome.results.values() if result.rate is not None]
    done.sort(key=lambda result: -result.rate.median if result.rate else 0.0)
    rows = []
    for result in done:
        assert result.rate is not None
        name = result.contestant.name
        peer = not result.contestant.limit and result.contestant.package != DISTRIBUTION
        rows.append(
            Row(
                result.contestant.title,
                _shown(result.rate, batches),
                "us/batch" if batches else "examples/s",
                _shown(limit, batches) if limit and name != limit_name else None,
                ratio=outcome.faster(PYECHO, name),
                target=f">= {planned.target:g}" if planned.target and peer else "",
            )
        )
    report.add(planned.title, rows)
    for result in outcome.results.values():
        if result.failure:
            report.note(f"{planned.title}: {result.contestant.title} failed: {result.failure}")


def add_remarks(
    report: Report,
    contestants: Sequence[Contestant],
    versions: Mapping[str, str],
    outcomes: Sequence[Outcome],
) -> None:
    """Describe each contestant, its guarantees, and the resources it used."""
    for contestant in contestants:
        if contestant.limit:
            continue
        results = [
            (outcome, outcome.results[contestant.name])
            for outcome in outcomes
            if contestant.name in outcome.results
            and outcome.results[contestant.name].rate is not None
        ]
        if not results:
            continue
        words = "exact uses" if contestant.exact else "samples: uses are not exact"
        parts = [_remark(outcome, result) for outcome, result in results]
        report.note(
            f"{contestant.title} ({versions.get(contestant.name, 'version unknown')}): "
            + "; ".join([words, *(part for part in parts if part)])
        )
    for outcome in outcomes:
        for result in outcome.results.values():
            if result.idle_cpu_share > IDLE_CPU_SHARE:
                report.note(
                    f"{outcome.work.title}: {result.contestant.title} used up to "
                    f"{result.idle_cpu_share:.0%} of a core while others were measured"
                )


def extras(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return the facts that the tables leave out, for the JSON file."""
    return [
        {
            "work": outcome.work.as_json(),
            "results": [result.as_json() for result in outcome.results.values()],
        }
        for outcome in outcomes
    ]


def _remark(outcome: Outcome, result: Result) -> str:
    if outcome.work.kind == "batches":
        return ""
    words = f"{outcome.work.row_bytes:,} B: {result.distinct:.0%} of a batch distinct"
    words += f", moved by {result.mixing:.2g} pools"
    if result.contestant.tuned:
        words += f", {result.threads} threads" if result.threads > 1 else ", 1 thread"
    if not result.contestant.exact:
        words += f", {result.uses[0]} to {result.uses[1]} uses"
    return words


def _shown(rate: Any, batches: bool) -> Any:
    """Return examples per second unchanged, and batches as microseconds per batch."""
    if not batches:
        return rate
    return type(rate)(tuple(MICROSECONDS / value for value in rate.values))
