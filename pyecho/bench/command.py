"""The ``pyecho bench`` command. Importing this module needs nothing but the standard library."""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

from pyecho.tools import arguments as shared

MEASUREMENTS = ("repeat", "gather", "put", "hand-over", "pipeline")
SUMMARY = "measure what echoing costs on this machine, in half a minute"
DESCRIPTION = """\
Measure what echoing costs on this machine, each number beside its limit in the
same run: one repeat beside a bare generator; the gather of batches beside bare
memcpy with as many threads as gather, and on all cores; put beside memcpy; a
hand-over to a sleeping thread beside a condition variable; and a whole pipeline
beside Eq. 1 of the paper, max(t_up, e * t_down), with t_up = 5 ms and t_down =
1 ms. Unless a row says otherwise, rows are gathered with e = 4 in batches of
256 out of 4,096 (512 large ones), with the threads that a loader would have.
Takes about half a minute; other programs disturb it.
"""
EPILOG = ""
_GATHERED: dict[str, tuple[str, list[Any]]] = {
    "rows": ("bytes of a row (default: 256, 3072 and 150528)", [256, 3072, 150_528]),
    "factor": ("uses of each row (default: 4)", [4]),
    "batch-size": ("rows of a batch (default: 256)", [256]),
    "shuffle-buffer": ("rows of the pool", [None]),
    "threads": ("threads that make batches", [None]),
}
"""Options, in the order of `gather.Workload`, with their help and their values by default."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--only",
        type=shared.some_of(MEASUREMENTS),
        default=MEASUREMENTS,
        metavar="NAME,...",
        help=f"some of {', '.join(MEASUREMENTS)} (default: all of them)",
    )
    for name, count, text in (
        ("--rounds", 5, "how often each contestant runs, taking turns"),
        ("--runs", 1, "measure everything N times; each run counts with its medians"),
    ):
        text += " (default: %(default)s)"
        parser.add_argument(name, type=shared.positive_int, default=count, metavar="N", help=text)
    written = "write a table and JSON into a folder as well, named after the processor"
    parser.add_argument("--output", type=Path, metavar="DIR", help=written)
    group = parser.add_argument_group("gather, for each combination of")
    for name, (meaning, _) in _GATHERED.items():
        numbers = shared.list_of(shared.whole_number(0 if name == "threads" else 1))
        group.add_argument(f"--{name}", type=numbers, metavar="N,...", help=meaning)
    shared.add_output(parser, "the ratios to the limits")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from pyecho.bench import gather, measurements
    from pyecho.bench.report import Report, facts_of, slug
    from pyecho.bench.row import pooled

    if arguments.plot is not None:
        shared.check_figure("--plot", arguments.plot)
    if arguments.output is not None:
        shared.check_folder("--output", arguments.output)
    facts = facts_of(runs=arguments.runs, rounds=arguments.rounds)
    machine = facts["cpu"] or facts["system"]
    report = Report(f"What echoing costs on {machine}", f"overhead-{slug(machine)}", facts)
    given = [getattr(arguments, name.replace("-", "_")) for name in _GATHERED]
    report.partial = any(given) or arguments.only != MEASUREMENTS
    usual = [values for _, values in _GATHERED.values()]
    varied = [some or values for some, values in zip(given, usual, strict=True)]
    workloads = list(itertools.starmap(gather.Workload, itertools.product(*varied)))
    rounds = arguments.rounds
    measure = {
        "repeat": lambda: measurements.repeat(rounds),
        "gather": lambda: gather.measure(rounds, workloads),
        "put": lambda: measurements.put(rounds),
        "hand-over": lambda: measurements.hand_over(rounds),
        # Fewer rounds, because this takes most of the time, and its numbers hardly vary.
        "pipeline": lambda: measurements.pipeline((rounds + 1) // 2),
    }
    runs = [{name: measure[name]() for name in arguments.only} for _ in range(arguments.runs)]
    for name in arguments.only:
        report.add(name, [pooled(rows) for rows in zip(*(run[name] for run in runs), strict=True)])
    shared.show(arguments, report.as_json(), report.as_text(), report.draw)
    if arguments.output is not None:
        print(*report.write(arguments.output), sep="\n", file=sys.stderr)
    return 0
