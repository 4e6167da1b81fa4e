"""The ``pyecho bench`` command. Importing this module needs nothing but the standard library."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyecho.tools import arguments as shared
from pyecho.tools import info

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
        type=shared.positive_int,
        default=5,
        metavar="N",
        help="how often each contestant runs, taking turns (default: %(default)s)",
    )
    shared.add_output(parser, "the ratios to the limits")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from pyecho.bench.commit import commit_of
    from pyecho.bench.report import print_table, write_figure
    from pyecho.bench.sampling import shown

    shared.check_arguments(arguments)
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
    shared.show(
        arguments,
        {"facts": facts, "rows": [row.as_json() for row in rows]},
        lambda: print_table(rows, facts),
        lambda path: write_figure(rows, facts, path),
    )
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
