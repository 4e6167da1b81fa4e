"""Measures pyecho beside the tools a user would pick instead, in turns in one run.

All do the same work: read fresh examples from memory in order, use each 4 times, shuffled among a
pool, and emit batches of 256 into which every row has been copied. Each tool has a virtual
environment of its own, made at the first run (gigabytes, several minutes), and a process of its
own, which is idle while the others are measured. Writes a table and JSON to peers-<name of the
CPU>, and to ...-partial if anything is left out. Exits with 1 if a contestant could not take part.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from common.command import (
    INTERRUPTED,
    ROOT,
    add_rounds,
    exit_when_terminated,
    finish,
    new_parser,
    new_report,
)

from peers import measuring, summary
from peers.environments import EnvironmentFailed, Environments
from peers.process import WorkerFailed, WorkerProcess
from peers.roster import BARE, LIMIT, PYECHO, Contestant, all_names, named
from peers.workloads import PLANNED, Planned
from pyecho.bench.report import Report
from pyecho.config import available_cores
from pyecho.tools.arguments import some_of

ROUNDS = 7
SECONDS, QUICK_SECONDS = 1.0, 0.1
ANSWER_SECONDS = 300.0


def parsed_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser("peers.py", __doc__)
    add_rounds(parser, ROUNDS)
    parser.add_argument(
        "--only",
        type=some_of(all_names()),
        default=all_names(),
        metavar="NAME,...",
        help=f"some of {', '.join(all_names())} (default: all; {PYECHO} and the limits {LIMIT} and "
        f"{BARE} always take part)",
    )
    names = tuple(planned.name for planned in PLANNED)
    parser.add_argument(
        "--work",
        type=some_of(names),
        default=names,
        metavar="NAME,...",
        help=f"some of {', '.join(names)} (default: all)",
    )
    parser.add_argument(
        "--seconds",
        type=duration,
        help=f"length of a measurement (default: {SECONDS}; with --quick {QUICK_SECONDS})",
    )
    parser.add_argument(
        "--environments",
        type=Path,
        default=ROOT / "build" / "peers",
        metavar="DIR",
        help="where the virtual environments are kept (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    options.seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    return options


def duration(text: str) -> float:
    """Return a number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= ANSWER_SECONDS / 10:
        raise argparse.ArgumentTypeError(
            f"more than 0 and at most {ANSWER_SECONDS / 10:g} seconds, got {text!r}"
        )
    return seconds


def started(
    contestants: Sequence[Contestant],
    environments: Environments,
    stack: contextlib.ExitStack,
    report: Report,
) -> tuple[dict[str, WorkerProcess], dict[str, str]]:
    """Start all contestants; return their processes and their installed packages.

    A contestant that cannot be installed or started gets a note in the report.
    """
    processes: dict[str, WorkerProcess] = {}
    versions: dict[str, str] = {}
    for contestant in contestants:
        name = contestant.name
        print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
        try:
            python = environments.python(contestant.requirements)
            process = stack.enter_context(
                WorkerProcess(python, contestant.module, environments.log(name), ANSWER_SECONDS)
            )
            packages = [contestant.package] if contestant.package else []
            answer = process.ask("versions", packages=packages)
        except EnvironmentFailed as error:
            report.note(f"{contestant.title}: could not be installed: {error}")
        except WorkerFailed as error:
            report.note(f"{contestant.title}: could not be started: {error}")
        else:
            processes[name] = process
            found = ", ".join(f"{key} {value}" for key, value in answer["versions"].items())
            versions[name] = found
        print(versions.get(name, "FAILED"), file=sys.stderr, flush=True)
    return processes, versions


def run(options: argparse.Namespace, report: Report, outcomes: list[measuring.Outcome]) -> None:
    """Measure one workload after the other. Finished ones are in `report` and `outcomes`."""
    contestants = named(options.only)
    planned = [each for each in PLANNED if each.name in options.work]
    with contextlib.ExitStack() as stack:
        environments = Environments(options.environments)
        processes, versions = started(contestants, environments, stack, report)
        ready = [each for each in contestants if each.name in processes]
        packages = {text for name, text in versions.items() if text}
        report.facts["packages"] = ", ".join(sorted(packages))
        for each in planned:
            outcome = measuring.measure(
                each.work(available_cores()),
                processes,
                ready,
                rounds=options.rounds,
                seconds=options.seconds,
            )
            outcomes.append(outcome)
            summary.add_outcome(report, each, outcome)
        describe(report, planned)
        summary.add_remarks(report, ready, versions, outcomes)


def describe(report: Report, planned: Sequence[Planned]) -> None:
    """Explain the numbers."""
    report.note("where the number of threads is an option, the faster of 1 and all cores is used")
    report.note(
        "ratios are pyecho's rate over the contestant's, round by round: above 1, pyecho is faster"
    )
    for each in planned:
        work = each.work(available_cores())
        pool = "" if work.kind == "batches" else f", a pool of {work.pool:,}"
        mebibytes = work.rows * work.row_bytes / 2**20
        report.note(
            f"{work.title}: batches of {work.batch}, factor {work.factor}{pool}, {work.rows:,} "
            f"fresh examples ({mebibytes:,.0f} MiB) read over and again, {work.threads} cores"
        )


def leaves_out(options: argparse.Namespace) -> bool:
    """Return True if this is less than a whole run."""
    everything = set(options.only) == set(all_names()) and len(options.work) == len(PLANNED)
    return options.quick or not everything


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    options = parsed_arguments(arguments)
    exit_when_terminated()
    report = new_report("peers", "pyecho and its peers", options, seconds=options.seconds)
    report.ratio_name = "pyecho's speed over its speed"
    report.partial = leaves_out(options)
    began = time.monotonic()
    outcomes: list[measuring.Outcome] = []
    interrupted = False
    try:
        run(options, report, outcomes)
    except KeyboardInterrupt:
        interrupted = True
        print("Interrupted; what was finished is reported.", file=sys.stderr)
        report.partial = True
        report.note("interrupted: some workloads, and the remarks on each contestant, are missing")
    report.facts["duration"] = round(time.monotonic() - began)
    if outcomes:
        finish(report, options, workloads=summary.extras(outcomes))
    if interrupted:
        return INTERRUPTED
    return 1 if any("could not be" in note or " failed: " in note for note in report.notes) else 0
