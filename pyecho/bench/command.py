"""The ``pyecho bench`` command. Importing this module needs nothing but the standard library."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyecho.tools import arguments as shared

MEASUREMENTS = ("repeat", "gather", "put", "hand-over", "pipeline")
_DESCRIPTION = """\
Measure what echoing costs on this machine, each number beside its limit in the
same run: one repeat beside a bare generator; the gather of batches beside bare
memcpy with as many threads as gather, and on all cores; put beside memcpy; a
hand-over to a sleeping thread beside a condition variable; and a whole pipeline
beside Eq. 1 of the paper, max(t_up, e * t_down), with t_up = 5 ms and t_down =
1 ms. Unless a row says otherwise, rows are gathered with e = 4 in batches of
256 out of 4,096 (512 large ones), with the threads that a loader would have.
Takes about half a minute; other programs disturb it.
"""
_GATHERED: dict[str, tuple[str, list[Any]]] = {
    "rows": ("bytes of a row (default: 256, 3072 and 150528)", [256, 3072, 150_528]),
    "factor": ("uses of each row (default: 4)", [4]),
    "batch-size": ("rows of a batch (default: 256)", [256]),
    "shuffle-buffer": ("rows of the pool", [None]),
    "threads": ("threads that make batches", [None]),
}
"""Options, in the order of `gather.Workload`, with their help and their values by default."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "bench",
        help="measure what echoing costs on this machine, in half a minute",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        type=shared.some_of(MEASUREMENTS),
        default=MEASUREMENTS,
        metavar="NAME,...",
        help=f"some of {', '.join(MEASUREMENTS)} (default: all of them)",
    )
    parser.add_argument(
        "--rounds",
        type=shared.positive_int,
        default=5,
        metavar="N",
        help="how often each contestant runs, taking turns (default: %(default)s)",
    )
    parser.add_argument(
        "--runs",
        type=shared.positive_int,
        default=1,
        metavar="N",
        help="measure everything N times; each run counts with its medians (default: %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="write a table and JSON into a folder as well, named after the processor",
    )
    group = parser.add_argument_group("gather, for each combination of")
    for name, (meaning, _) in _GATHERED.items():
        least = 0 if name == "threads" else 1
        group.add_argument(f"--{name}", type=_numbers(least), metavar="N,...", help=meaning)
    shared.add_output(parser, "the ratios to the limits")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from pyecho.bench import gather, measurements
    from pyecho.bench.report import Report, facts_of, print_table, slug, write_figure
    from pyecho.bench.row import pooled

    shared.check_arguments(arguments)
    if arguments.output is not None:
        shared.check_folder("--output", arguments.output)
    facts = facts_of(runs=arguments.runs, rounds=arguments.rounds)
    name = facts["cpu"] or facts["system"]
    report = Report(f"What echoing costs on {name}", f"overhead-{slug(name)}", facts)
    varied = [getattr(arguments, name.replace("-", "_")) for name in _GATHERED]
    report.partial = any(varied) or arguments.only != MEASUREMENTS
    workloads = [
        gather.Workload(*values)
        for values in itertools.product(
            *(given or usual for given, (_, usual) in zip(varied, _GATHERED.values(), strict=True))
        )
    ]
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
    rows = list(itertools.chain.from_iterable(report.sections.values()))
    shared.show(
        arguments,
        report.as_json(),
        lambda: print_table(rows, facts),
        lambda path: write_figure(rows, facts, path),
    )
    if arguments.output is not None:
        print(*report.write(arguments.output), sep="\n", file=sys.stderr)
    return 0


def _numbers(least: int) -> Callable[[str], list[int]]:
    def numbers(text: str) -> list[int]:
        parts = text.split(",")
        if not all(part.isdecimal() and int(part) >= least for part in parts):
            raise argparse.ArgumentTypeError(f"{text!r} has others than numbers from {least} on")
        return [int(part) for part in parts]

    return numbers
