"""Arguments that several commands share. Needs nothing but the standard library."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path


def positive_int(text: str) -> int:
    """Return a whole number of at least 1; the type of an argument."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def add_output(parser: argparse.ArgumentParser, drawn: str) -> None:
    """Add ``--json`` and ``--plot``, which draws what `drawn` names."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="PATH",
        help=f"draw {drawn} as well; the suffix decides the format",
    )


def packages_for(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the packages that the output of `add_output` needs, each with its module."""
    wanted = {"rich": not arguments.json, "matplotlib": arguments.plot is not None}
    return {name: name for name, needed in wanted.items() if needed}


def lacks(command: str, packages: dict[str, str]) -> bool:
    """Print how to install packages that are missing; return True if any is."""
    missing = [name for module, name in packages.items() if find_spec(module) is None]
    if missing:
        # Not an extra of pyecho's, because the name pyecho on PyPI belongs to another project.
        print(
            f"{command} needs {', '.join(missing)}: pip install {' '.join(missing)}",
            file=sys.stderr,
        )
    return bool(missing)
