"""The ``pyecho bench`` command. Importing this module needs nothing but the standard library."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyecho import EchoError
from pyecho.tools import info
from pyecho.tools.arguments import add_output, lacks, packages_for, positive_int

if TYPE_CHECKING:
    from pyecho.bench.row import Row
    from pyecho.bench.sampling import Progress

EXIT_FAILED = 1
EXIT_USAGE = 2
MEASUREMENTS = ("repeat", "gather", "put", "hand-over", "pipeline")
_DESCRIPTION = """\
Measure what echoing costs on this machine, each number beside its limit in the
same run: one repeat beside a bare generator; the gather of batches beside bare
memcpy with as many threads as gather, and on all cores; put beside memcpy; a
hand-over to a sleeping thread beside a condition variable; and a whole pipeline
beside Eq. 1 of the paper, max(t_up, e * t_down), with t_up = 5 ms and t_down =
1 ms. Unless a row says otherwise, rows are gathered with e = 4 in batches of
256 out of 4,096, with one thread. Takes about half a minute; other programs
disturb it.
"""


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
        type=_chosen,
        default=MEASUREMENTS,
        metavar="NAME,...",
        help=f"some of {', '.join(MEASUREMENTS)} (default: all of them)",
    )
    parser.add_argument(
        "--rounds",
        type=positive_int,
        default=5,
        metavar="N",
        help="how often each contestant runs, taking turns (default: %(default)s)",
    )
    add_output(parser, "the ratios to the limits")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure and report; return the exit status."""
    if lacks("pyecho bench", packages_for(arguments)):
        return EXIT_USAGE
    try:
        return _run(arguments)
    except (EchoError, OSError, MemoryError, ValueError) as error:
        print(f"pyecho bench: {error}", file=sys.stderr)
        return EXIT_FAILED


def _run(arguments: argparse.Namespace) -> int:
    from pyecho.bench.commit import commit_of
    from pyecho.bench.progress import shown

    if arguments.plot is not None:
        from pyecho.bench.figure import check_path, write_figure

        check_path(arguments.plot)
    facts = info.collect() | {
        "commit": commit_of(Path(__file__).resolve().parents[2]),
        "date": datetime.date.today().isoformat(),
        "rounds": arguments.rounds,
    }
    rows: list[Row] = []
    with shown() as progress:
        for name, measure in _measurements(arguments.rounds, progress).items():
            if name in arguments.only:
                rows += measure()
    if arguments.json:
        document = {"facts": facts, "rows": [row.as_json() for row in rows]}
        print(json.dumps(document, indent=2))
    else:
        from pyecho.bench.table import print_table

        print_table(rows, facts)
    if arguments.plot is not None:
        write_figure(rows, facts, arguments.plot)
        print(f"Figure: {arguments.plot}", file=sys.stderr)
    return 0


def _measurements(rounds: int, progress: Progress) -> dict[str, Callable[[], Any]]:
    from pyecho.bench import gather, hand_over, pipeline, put, repeat

    return {
        "repeat": lambda: repeat.measure(rounds, progress),
        "gather": lambda: gather.measure(
            rounds, progress, gather.default_workloads(), every_core=True
        ),
        "put": lambda: put.measure(rounds, progress),
        "hand-over": lambda: hand_over.measure(rounds, progress),
        # Fewer rounds, because this takes most of the time, and its numbers hardly vary.
        "pipeline": lambda: pipeline.measure((rounds + 1) // 2, progress),
    }


def _chosen(names: str) -> tuple[str, ...]:
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    if not wanted or wanted - set(MEASUREMENTS):
        raise argparse.ArgumentTypeError(f"names are {', '.join(MEASUREMENTS)}, got {names!r}")
    return tuple(name for name in MEASUREMENTS if name in wanted)
