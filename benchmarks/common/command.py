"""Shared by the commands of this folder: options, results in a folder, and an early end."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pyecho.bench.report import Report, facts_of, slug
from pyecho.tools.arguments import CommandError, check_folder, positive_int

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "build" / "bench"
QUICK_ROUNDS = 2
INTERRUPTED = 130
"""The exit status after Ctrl-C."""
_TERMINATED = 143


def printing_parser(command: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser for a command that only prints."""
    return argparse.ArgumentParser(
        prog=f"benchmarks/{command}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def new_parser(command: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option of commands that write results."""
    parser = printing_parser(command, description)
    parser.add_argument(
        "--output",
        type=Path,
        default=OUTPUT,
        metavar="DIR",
        help="where table and JSON go (default: %(default)s)",
    )
    return parser


def add_rounds(parser: argparse.ArgumentParser, rounds: int) -> None:
    """Add the options of a command whose contestants take turns."""
    parser.add_argument(
        "--rounds", type=positive_int, default=rounds, metavar="N", help="default: %(default)s"
    )
    parser.add_argument(
        "--quick", action="store_true", help="two short rounds: shows that everything works"
    )


def add_seeds(parser: argparse.ArgumentParser, seeds: int) -> None:
    """Add the option of a command whose runs are repeated with other seeds."""
    parser.add_argument(
        "--seeds", type=positive_int, default=seeds, metavar="N", help="default: %(default)s"
    )


def new_report(name: str, title: str, options: argparse.Namespace, **facts: Any) -> Report:
    """Return a report for the options of `new_parser` and `add_rounds`; make their folder."""
    make_output(options)
    if options.quick:
        options.rounds = min(options.rounds, QUICK_ROUNDS)
    described = facts_of(rounds=options.rounds, **facts)
    machine = described["cpu"] or described["system"]
    stem = f"{name}-{slug(machine)}"
    return Report(f"{title} on {machine}", stem, described, partial=options.quick)


def make_output(options: argparse.Namespace) -> None:
    """Make the folder of the results, before anything is measured."""
    try:
        check_folder("--output", options.output)
    except CommandError as error:
        raise SystemExit(str(error)) from None


def write_results(output: Path, name: str, *, partial: bool = False, **found: Any) -> Path:
    """Write numbers as JSON, with the machine and the commit, into a file in the folder of results.

    Return the file.
    """
    output.mkdir(parents=True, exist_ok=True)
    facts = facts_of()
    machine = slug(facts["cpu"] or facts["system"])
    path = output / f"{name}-{machine}{'-partial' * partial}.json"
    numbers = json.dumps({"facts": facts, **found}, default=_plain, allow_nan=False)
    path.write_text(numbers + "\n")
    print(path, file=sys.stderr)
    return path


def _plain(value: Any) -> Any:
    """Return an array as lists, with None for what is not finite."""
    return np.where(np.isfinite(value), value, None).tolist()


def finish(report: Report, options: argparse.Namespace, **more: Any) -> None:
    """Print the table, and write it and JSON, which also holds `more`."""
    print(report.as_markdown())
    print(*report.write(options.output, **more), sep="\n", file=sys.stderr)


def exit_when_terminated() -> None:
    """Let SIGTERM raise SystemExit, so that child processes end as well."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
