"""The ``pyecho demo`` command. Importing this module needs nothing but the standard library."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path

from pyecho.tools import info
from pyecho.tools.arguments import CommandError, check_figure, check_output, positive_int, require

EXIT_MISSED = 1
MAX_FACTOR = 100

_DESCRIPTION = """\
Train a small network on images that arrive over a slow line, with and without
data echoing, and compare the time to a fixed test accuracy.

The images are real files behind a real HTTP server on loopback, whose bandwidth
is set so that fetching a batch takes about six times as long as training on it.
Every use of an image shows another part of it, cropped and resized natively.
"""
_EPILOG = """\
exit status: 0 if every run reached the target, 1 if one did not or something
went wrong, 2 if the arguments are wrong or a package is missing.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
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
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    require(("torch", "sklearn", "PIL", "rich", "matplotlib"))
    from rich.console import Console

    from .display import Display, print_table
    from .experiment import Plan, run_experiment
    from .figure import write_figure
    from .summary import as_json, conclusion, summarize

    _check_outputs(arguments)
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

    def write(what: str, path: Path, action: Callable[[], object]) -> str:
        """Write a file; return what went wrong, so that the others are written nevertheless."""
        try:
            action()
        except OSError as error:
            return f"{path} ({error.strerror})"
        console.print(f"{what}: {path}", soft_wrap=True, markup=False)
        return ""

    failures = []
    if arguments.trace is not None:
        console.print(f"Trace: {arguments.trace}", soft_wrap=True, markup=False)
    if arguments.json is not None:
        text = json.dumps(as_json(outcome, info.collect()), indent=2, allow_nan=False) + "\n"
        failures.append(write("Numbers", arguments.json, lambda: arguments.json.write_text(text)))
    drawing = arguments.output
    failures.append(write("Figure", drawing, lambda: write_figure(outcome, rows, drawing)))
    if any(failures):
        raise CommandError(
            f"could not write {' and '.join(filter(None, failures))}, though it was possible "
            "before training: check the folder and its free space, and run again"
        )
    return 0 if all(row.complete for row in rows) else EXIT_MISSED


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Raise `CommandError` if a file could not be written, or if two are the same file."""
    taken: dict[Path, str] = {}
    for option in ("output", "json", "trace"):
        path = getattr(arguments, option)
        if path is None:
            continue
        check_output(f"--{option}", path)
        other = taken.setdefault(path.resolve(), option)
        if other != option:
            raise CommandError(
                f"--{other} and --{option} need files of their own, but both are {path}: change "
                "one of them"
            )
    check_figure("--output", arguments.output)


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
