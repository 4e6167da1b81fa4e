"""The ``pyecho demo`` command. Importing this module needs nothing but the standard library."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

from pyecho import EchoError
from pyecho.tools import info
from pyecho.tools.arguments import lacks, positive_int

from .errors import DemoError
from .outputs import Output, check_outputs, write_outputs

EXIT_MISSED = 1
EXIT_USAGE = 2
MAX_FACTOR = 100

_PACKAGES = {
    "torch": "torch",
    "sklearn": "scikit-learn",
    "PIL": "pillow",
    "rich": "rich",
    "matplotlib": "matplotlib",
}
_DESCRIPTION = """\
Train a small network on images that arrive over a slow line, with and without
data echoing, and compare the time to a fixed test accuracy.

The images are real files behind a real HTTP server on loopback, whose bandwidth
is set so that fetching a batch takes about six times as long as training on it.
Random shifts and rotations are applied to every use of an image.
"""
_EPILOG = """\
exit status: 0 if every run reached the target, 1 if one did not or something
went wrong, 2 if the arguments are wrong or a package is missing.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line.

    Parameters
    ----------
    subparsers
        The result of `argparse.ArgumentParser.add_subparsers`.
    """
    parser = subparsers.add_parser(
        "demo",
        help="see what echoing gains on this machine, in two minutes",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--factors",
        type=_factors,
        default=(1.0, 2.0, 3.0, 5.0),
        metavar="E,E,...",
        help=f"echo factors to compare, each from 1 to {MAX_FACTOR}, fractions allowed; 1 is "
        "always among them, as the baseline (default: 1,2,3,5)",
    )
    parser.add_argument(
        "--seeds",
        type=positive_int,
        default=3,
        metavar="N",
        help="runs for each factor (default: %(default)s)",
    )
    parser.add_argument(
        "--target",
        type=_share,
        default=0.96,
        metavar="ACCURACY",
        help="test accuracy to reach, between 0 and 1 (default: %(default)s)",
    )
    parser.add_argument(
        "--max-steps",
        type=positive_int,
        default=800,
        metavar="N",
        help="steps after which a run gives up (default: %(default)s)",
    )
    parser.add_argument(
        "--images",
        type=Path,
        metavar="DIR",
        help="a folder with one sub-folder of images per class, used at no more than 32 x 32 "
        "pixels (default: the handwritten digits of scikit-learn)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("pyecho-demo.png"),
        metavar="PATH",
        help="where the figure goes; the suffix decides the format (default: %(default)s)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help="where to write all raw numbers as well"
    )
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="PATH",
        help="where to write a Chrome trace (JSON) of the runs with the first seed",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the demonstration and return the exit status.

    Parameters
    ----------
    arguments
        The parsed command line.
    """
    if lacks("pyecho demo", _PACKAGES):
        return EXIT_USAGE
    try:
        return _run(arguments)
    except (DemoError, EchoError, OSError) as error:
        print(f"pyecho demo: {error}", file=sys.stderr)
        return EXIT_MISSED


def _run(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from .display import Display, print_table
    from .experiment import Plan, run_experiment
    from .figure import check_format, write_figure
    from .summary import as_json, conclusion, summarize

    figure = Output("--output", arguments.output)
    numbers = None if arguments.json is None else Output("--json", arguments.json)
    trace = None if arguments.trace is None else Output("--trace", arguments.trace)
    check_outputs([each for each in (figure, numbers, trace) if each is not None])
    check_format(figure.path)
    plan = Plan(
        factors=arguments.factors,
        seeds=arguments.seeds,
        target=arguments.target,
        max_steps=arguments.max_steps,
        folder=arguments.images,
        trace=arguments.trace,
    )
    console = Console(highlight=False)
    display = Display(plan, console)
    with display.live():
        outcome = run_experiment(plan, display)
    rows = summarize(outcome.runs, outcome.calibration.upstream_seconds)
    console.print()
    print_table(rows, console)
    console.print(f"\n{conclusion(rows, plan.target)}\n")

    def write_drawing(path: Path) -> None:
        write_figure(outcome, rows, path)
        console.print(f"Figure: {path}", soft_wrap=True, markup=False)

    def write_numbers(path: Path) -> None:
        document = as_json(outcome, info.collect())
        path.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
        console.print(f"Numbers: {path}", soft_wrap=True, markup=False)

    if trace is not None:
        console.print(f"Trace: {trace.path}", soft_wrap=True, markup=False)
    writers = [] if numbers is None else [(numbers, write_numbers)]
    write_outputs([*writers, (figure, write_drawing)])
    return 0 if all(row.complete for row in rows) else EXIT_MISSED


def _factors(text: str) -> tuple[float, ...]:
    factors = {1.0}
    for part in text.split(","):
        try:
            factor = float(part)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a list of numbers such as 1,2,3.5"
            ) from None
        if not 1 <= factor <= MAX_FACTOR:
            raise argparse.ArgumentTypeError(
                f"{part.strip()} is not an echo factor from 1 to {MAX_FACTOR}"
            )
        factors.add(factor)
    return tuple(sorted(factors))


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number between 0 and 1")
    return share
