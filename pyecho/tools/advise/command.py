"""The ``pyecho advise`` command."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyecho import EchoError
from pyecho.loader import EchoLoader
from pyecho.tools.advise.measure import Step, measured_advice
from pyecho.tools.arguments import add_output, lacks, packages_for, positive_int

EXIT_FAILED = 1
EXIT_USAGE = 2
_DESCRIPTION = """\
Measure a pipeline and show what it does at each echo factor, what limits it, and
what to change.

FUNCTION of FILE is called without arguments, once for each of two runs. It returns
an EchoLoader, or a source to be echoed by batches, or either of them with a step
function: (loader, step). step(batch) is a training step; it should wait for its
device (torch.cuda.synchronize()), or its time is not seen.
"""
_EPILOG = """\
exit status: 0, or 1 if something went wrong, 2 if the arguments are wrong or a
package is missing.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "advise",
        help="measure a pipeline of yours, and find the echo factor for it",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "target", type=_target, metavar="FILE.py:FUNCTION", help="what makes the pipeline"
    )
    parser.add_argument(
        "--steps",
        type=positive_int,
        default=100,
        metavar="N",
        help="batches of each run, and of the predicted seconds (default: %(default)s)",
    )
    add_output(parser, "the prediction")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure and report; return the exit status. Errors of the function itself are raised."""
    if lacks("pyecho advise", packages_for(arguments)):
        return EXIT_USAGE
    try:
        return _run(arguments)
    except (EchoError, OSError, ValueError) as error:
        print(f"pyecho advise: {error}", file=sys.stderr)
        return EXIT_FAILED


def _run(arguments: argparse.Namespace) -> int:
    if arguments.plot is not None:
        from pyecho.bench.figure import check_path

        check_path(arguments.plot)
    make = _function(*arguments.target)
    advice = measured_advice(lambda: _pipeline(make()), arguments.steps)
    if arguments.json:
        print(json.dumps(advice.as_json(), indent=2))
    else:
        from pyecho.tools.advise.table import print_table

        print_table(advice)
    if arguments.plot is not None:
        from pyecho.tools.advise.figure import write_figure

        write_figure(advice, arguments.plot)
        print(f"Figure: {arguments.plot}", file=sys.stderr)
    return 0


def _target(text: str) -> tuple[Path, str]:
    file, _, name = text.rpartition(":")
    if not file or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form FILE.py:FUNCTION")
    return Path(file), name


def _function(path: Path, name: str) -> Callable[[], Any]:
    """Import a file as a module, with its folder on the path, and return a function of it."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # worker processes look for it there
    sys.path.insert(0, str(path.absolute().parent))
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{path} has no function {name}")
    made: Callable[[], Any] = function
    return made


def _pipeline(made: Any) -> tuple[EchoLoader, Step | None]:
    """Return the loader and the step function that the user's function has made."""
    step = None
    if isinstance(made, tuple) and len(made) == 2 and callable(made[1]):
        made, step = made
    return made if isinstance(made, EchoLoader) else EchoLoader(made, 1), step
