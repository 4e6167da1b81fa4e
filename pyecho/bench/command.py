"""The ``pyecho bench`` command. Importing this module needs nothing but the standard library."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyecho.tools import arguments as shared

if TYPE_CHECKING:
    from pyecho.bench.row import Row
    from pyecho.bench.sampling import Progress

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
_GATHERED = {
    "rows": "bytes of a row (default: 256, 3072 and 150528)",
    "factor": "uses of each row (default: 4)",
    "batch-size": "rows of a batch (default: 256)",
    "shuffle-buffer": "rows of the pool",
    "threads": "threads that make batches",
}


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
    for name, meaning in _GATHERED.items():
        least = 0 if name == "threads" else 1
        group.add_argument(f"--{name}", type=_numbers(least), metavar="N,...", help=meaning)
    shared.add_output(parser, "the ratios to the limits")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from pyecho.bench.report import Report, facts_of, print_table, slug, write_figure
    from pyecho.bench.row import pooled
    from pyecho.bench.sampling import shown

    shared.check_arguments(arguments)
    if arguments.output is not None:
        shared.check_folder("--output", arguments.output)
    facts = facts_of(runs=arguments.runs, rounds=arguments.rounds)
    name = facts["cpu"] or facts["system"]
    report = Report(f"What echoing costs on {name}", f"overhead-{slug(name)}", facts)
    varied = any(getattr(arguments, name.replace("-", "_")) for name in _GATHERED)
    report.partial = varied or arguments.only != MEASUREMENTS
    found: dict[str, list[list[Row]]] = {name: [] for name in arguments.only}
    with shown() as progress:
        measurements = _measurements(arguments, progress)
        for name in [*found] * arguments.runs:
            found[name].append(measurements[name]())
    for name, runs in found.items():
        report.add(name, [pooled(rows) for rows in zip(*runs, strict=True)])
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


def _measurements(
    arguments: argparse.Namespace, progress: Progress
) -> dict[str, Callable[[], list[Row]]]:
    from pyecho.bench import gather, hand_over, pipeline, put, repeat

    rounds = arguments.rounds
    workloads = itertools.starmap(
        gather.Workload,
        itertools.product(
            arguments.rows or [256, 3072, 150_528],
            arguments.factor or [4],
            arguments.batch_size or [256],
            arguments.shuffle_buffer or [None],
            arguments.threads or [None],
        ),
    )
    gathered = list(workloads)
    return {
        "repeat": lambda: repeat.measure(rounds, progress),
        "gather": lambda: gather.measure(rounds, progress, gathered),
        "put": lambda: put.measure(rounds, progress),
        "hand-over": lambda: hand_over.measure(rounds, progress),
        # Fewer rounds, because this takes most of the time, and its numbers hardly vary.
        "pipeline": lambda: pipeline.measure((rounds + 1) // 2, progress),
    }


def _numbers(least: int) -> Callable[[str], list[int]]:
    def numbers(text: str) -> list[int]:
        parts = text.split(",")
        if not all(part.isdecimal() and int(part) >= least for part in parts):
            raise argparse.ArgumentTypeError(f"{text!r} has others than numbers from {least} on")
        return [int(part) for part in parts]

    return numbers
