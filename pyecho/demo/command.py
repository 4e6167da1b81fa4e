"""The ``pyecho demo`` command. Importing this module needs nothing but the standard library."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyecho.tools.arguments import (
    EXIT_FAILED,
    check_figure,
    check_output,
    list_of,
    number_between,
    positive_int,
    require,
)

MAX_FACTOR = 100

SUMMARY = "see what echoing gains on this machine, in two minutes"
DESCRIPTION = """\
Train a small network on images that arrive over a slow line, with and without
data echoing, and compare the time to a fixed test accuracy.

The images are real files served by a real HTTP server on loopback, whose bandwidth
is set so that fetching a batch takes about six times as long as training on it.
Every use of an image shows another part of it, cropped and resized natively.
"""
EPILOG = """\
exit status: 0 if every run reached the target, 1 if one did not or something
went wrong, 2 if the arguments are wrong or a package is missing.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add, default = parser.add_argument, "(default: %(default)s)"
    add(
        "--factors",
        type=_factors,
        default=(1.0, 2.0, 3.0, 5.0),
        metavar="E,E,...",
        help=f"echo factors to compare, each from 1 to {MAX_FACTOR}, fractions allowed; 1 is "
        "always among them, as the baseline (default: 1,2,3,5)",
    )
    runs = f"runs for each factor {default}"
    add("--seeds", type=positive_int, default=3, metavar="N", help=runs)
    target = f"test accuracy to reach, between 0 and 1 {default}"
    add("--target", type=number_between(0, 1), default=0.96, metavar="ACCURACY", help=target)
    steps = f"steps after which a run gives up {default}"
    add("--max-steps", type=positive_int, default=800, metavar="N", help=steps)
    add(
        "--images",
        type=Path,
        metavar="DIR",
        help="a folder with one sub-folder of images per class, used at no more than 32 x 32 "
        "pixels (default: the handwritten digits of scikit-learn)",
    )
    figure = f"where the figure goes; the suffix decides the format {default}"
    add("--output", type=Path, default=Path("pyecho-demo.png"), metavar="PATH", help=figure)
    numbers = "where to write all raw numbers as well"
    add("--json", type=Path, metavar="PATH", help=numbers)
    trace = "where to write a Chrome trace (JSON) of the runs with the first seed"
    add("--trace", type=Path, metavar="PATH", help=trace)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require(("torch", "sklearn", "PIL", "matplotlib", "tqdm"))
    check_figure("--output", arguments.output)
    for option in ("json", "trace"):
        if (path := getattr(arguments, option)) is not None:
            check_output(f"--{option}", path)
    from . import experiment

    rows = experiment.run(arguments)
    return 0 if all(row.reached == row.runs for row in rows) else EXIT_FAILED


def _factors(text: str) -> tuple[float, ...]:
    return tuple(sorted({1.0, *list_of(number_between(1, MAX_FACTOR))(text)}))
