"""The ``pyecho advise`` command, with its table and its figure."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyecho.loader import EchoLoader
from pyecho.source.arrays import columns_of
from pyecho.tools import arguments as shared
from pyecho.tools.advise.measure import Pipeline, measured_advice
from pyecho.tools.advise.model import Advice
from pyecho.tools.arguments import CommandError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BAR = 24
SUMMARY = "measure a pipeline of yours, and find the echo factor for it"
DESCRIPTION = """\
Measure a pipeline and show what it does at each echo factor, what limits it, and
what to change: to echo more or less, to keep the examples in memory, to use more
workers, or nothing. Each line has the measurement that decides it.

FUNCTION of FILE is called without arguments, once for each run. It returns
an EchoLoader, or a source to be echoed by batches, or either of them with a step
function: (loader, step). step(batch) is a training step; it should wait for its
device (torch.cuda.synchronize()), or its time is not seen.
"""
EPILOG = """\
exit status: 0, or 1 if something went wrong, 2 if the arguments are wrong or a
package is missing.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add("target", type=_target, metavar="FILE.py:FUNCTION", help="what makes the pipeline")
    steps = "batches of each run, and of the predicted seconds (default: %(default)s)"
    add("--steps", type=shared.positive_int, default=100, metavar="N", help=steps)
    epochs = "passes of the training; some changes pay from the second one on (default: many)"
    add("--epochs", type=shared.positive_int, metavar="N", help=epochs)
    shared.add_output(parser, "the prediction")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.plot is not None:
        shared.check_figure("--plot", arguments.plot)
    try:
        make = _function(*arguments.target)
        advice = measured_advice(lambda: _pipeline(make()), arguments.steps, arguments.epochs)
    except OSError:  # of the user's code, like any other error of it
        traceback.print_exc()
        return shared.EXIT_FAILED
    shared.show(arguments, advice.as_json(), _table(advice), lambda figure: _draw(figure, advice))
    return 0


def _target(text: str) -> tuple[Path, str]:
    file, _, name = text.rpartition(":")
    if not file or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form FILE.py:FUNCTION")
    return Path(file), name


def _function(path: Path, name: str) -> Callable[[], Any]:
    """Import a file as a module, with its folder on the path, and return a function of it."""
    if not path.is_file():
        raise CommandError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CommandError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # worker processes look for it there
    sys.path.insert(0, str(path.absolute().parent))
    spec.loader.exec_module(module)
    function: Any = getattr(module, name, None)
    if not callable(function):
        raise CommandError(f"{path} has no function {name}")
    return function  # type: ignore[no-any-return]


def _pipeline(returned: Any) -> Pipeline:
    """Return the loader and the step function that the user's function has returned."""
    source, step = returned, None
    is_pair = isinstance(source, tuple) and len(source) == 2
    if is_pair and (callable(source[1]) or source[1] is None):
        source, step = source
    if isinstance(source, tuple) and columns_of(source, alike=False, unbatch=False) is None:
        raise CommandError(
            "the function must return a loader or a source, or one of them with a step function, "
            f"(loader, step); it returned ({', '.join(type(part).__name__ for part in source)})"
        )
    return source if isinstance(source, EchoLoader) else EchoLoader(source, 1), step


def _table(advice: Advice) -> str:
    """Return the prediction for each factor, with a bar for the accelerator's busy share."""
    lines = [("e", "steps/s", f"{advice.steps:,} steps", "idle", f"{'accelerator':<{_BAR}}")]
    for at in advice.predictions:
        idle, bar = "-", " " * _BAR
        if at.idle_share is not None:
            busy = round(_BAR * at.busy_share)
            idle, bar = f"{at.idle_share:.0%}", "█" * busy + "░" * (_BAR - busy)
        speed, seconds = f"{at.steps_per_second:,.1f}", f"{at.seconds:,.1f} s"
        lines.append((f"{at.factor}", speed, seconds, idle, bar))
    return f"{shared.columns(lines)}\n\n{advice}"


def _draw(figure: Figure, advice: Advice) -> None:
    """Draw the steps per second at each factor, with the busy share of the accelerator."""
    figure.set_size_inches(7, 4)
    axes = figure.subplots()
    factors = [f"{at.factor:g}" for at in advice.predictions]
    axes.bar(factors, [at.steps_per_second for at in advice.predictions], color="#f3d9d5")
    if advice.times.downstream:
        busy = [at.busy_share * at.steps_per_second for at in advice.predictions]
        bars = axes.bar(factors, busy, color="#2a6f4e", label="the accelerator is busy")
        shares = [f"{at.busy_share:.0%}" for at in advice.predictions]
        axes.bar_label(bars, shares, padding=3, fontsize=8)
        axes.legend()
    axes.set_xlabel("echo factor e")
    axes.set_ylabel("steps per second")
