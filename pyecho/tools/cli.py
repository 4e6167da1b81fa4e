"""The ``pyecho`` command line. Every command imports what it needs only when it runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from pyecho import _core
from pyecho.bench import command as bench
from pyecho.demo import command as demo
from pyecho.tools import info
from pyecho.tools.advise import command as advise

_EXIT_INTERRUPTED = 130


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="pyecho", description="A native data-echoing stage for training pipelines."
    )
    version = _core.build_info()["version"]
    parser.add_argument("--version", action="version", version=f"pyecho {version}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo.add_parser(subparsers)
    bench.add_parser(subparsers)
    advise.add_parser(subparsers)
    info_parser = subparsers.add_parser(
        "info",
        help="show the build, and what this machine offers to it",
        description="Show the build, and what this machine offers to it.",
    )
    info_parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    info_parser.set_defaults(run=_run_info)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (by default that of the process) and return the exit status."""
    arguments = build_parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _EXIT_INTERRUPTED
    return status


def _run_info(arguments: argparse.Namespace) -> int:
    facts = info.collect() | info.collect_cuda()
    print(json.dumps(facts, indent=2) if arguments.json else info.as_text(facts))
    return 0
