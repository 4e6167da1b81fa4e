"""The ``pyecho`` command line. Every command imports what it needs only when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pyecho import _core
from pyecho.bench import command as bench
from pyecho.demo import command as demo
from pyecho.tools import info
from pyecho.tools.advise import command as advise
from pyecho.tools.arguments import EXIT_FAILED, CommandError

_COMMANDS = {"demo": demo, "bench": bench, "advise": advise, "info": info}
_EXIT_INTERRUPTED = 130


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="pyecho", description="A native data-echoing stage for training pipelines."
    )
    version = _core.build_info()["version"]
    parser.add_argument("--version", action="version", version=f"pyecho {version}")
    subparsers = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True
    )
    for name, command in _COMMANDS.items():
        one = subparsers.add_parser(name, help=command.SUMMARY)
        one.description, one.epilog = command.DESCRIPTION, command.EPILOG
        one.formatter_class = argparse.RawDescriptionHelpFormatter
        command.add_arguments(one)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (by default that of the process) and return the exit status."""
    arguments = build_parser().parse_args(argv)
    try:
        status: int = _COMMANDS[arguments.command].run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, such as head, is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _EXIT_INTERRUPTED
    except (CommandError, _core.EchoError, OSError, MemoryError) as error:
        print(f"pyecho {arguments.command}: {error}", file=sys.stderr)
        return getattr(error, "status", EXIT_FAILED)
    return status
