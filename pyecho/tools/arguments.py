"""Arguments, checks and results of several commands. Needs only the standard library."""

from __future__ import annotations

import argparse
import io
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")

EXIT_FAILED = 1
EXIT_USAGE = 2
_DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow"}


class CommandError(Exception):
    """A failure that ends a command with one line: the need, the finding, the remedy."""

    def __init__(self, message: str, status: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.status = status


def whole_number(least: int) -> Callable[[str], int]:
    """Return the type of an argument that is a whole number."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return number


positive_int = whole_number(1)


def number_between(low: float, high: float) -> Callable[[str], float]:
    """Return the type of an argument that is a number in a range."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low:g} to {high:g}")
        return value

    return number


def list_of(one: Callable[[str], T]) -> Callable[[str], list[T]]:
    """Return the type of an argument that is a list, with commas. `one`: type of its parts."""
    return lambda text: [one(part) for part in text.split(",")]


def some_of(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    """Return the type of an argument that names some of `known`, with commas, in any order."""
    names = tuple(known)

    def chosen(text: str) -> tuple[str, ...]:
        wanted = {name.strip() for name in text.split(",") if name.strip()}
        if not wanted or wanted - set(names):
            raise argparse.ArgumentTypeError(f"names are {', '.join(names)}, got {text!r}")
        return tuple(name for name in names if name in wanted)

    return chosen


def require(modules: Iterable[str]) -> None:
    """Raise `CommandError` with the command that installs modules which are missing."""
    missing = [_DISTRIBUTIONS.get(name, name) for name in modules if find_spec(name) is None]
    if missing:
        # Not an extra of pyecho's, because the name pyecho on PyPI belongs to another project.
        raise CommandError(f"packages are missing: pip install {' '.join(missing)}", EXIT_USAGE)


@contextmanager
def _trying(option: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandError(
            f"{option} {path} cannot be written ({error.strerror}): choose another path"
        ) from error


def check_output(option: str, path: Path) -> None:
    """Raise `CommandError` if the file that an option names cannot be written. Leaves none."""
    with _trying(option, path):
        is_new = not path.exists()
        path.open("ab").close()
        if is_new:
            path.unlink()


def check_folder(option: str, folder: Path) -> None:
    """Make the folder that an option names; raise `CommandError` if that cannot be done."""
    with _trying(option, folder):
        folder.mkdir(parents=True, exist_ok=True)


def check_figure(option: str, path: Path) -> None:
    """Raise `CommandError` also if no figure can be drawn in the format of the suffix."""
    require(["matplotlib"])
    from matplotlib.figure import Figure

    check_output(option, path)
    trial = Figure()
    trial.text(0.5, 0.5, "e")  # "pgf" calls LaTeX
    try:
        trial.savefig(io.BytesIO(), format=path.suffix.lower().removeprefix("."))
    except (OSError, RuntimeError, ValueError, ImportError) as error:
        why = str(error).partition("\n")[0]
        raise CommandError(
            f"{option} {path} needs a suffix that names a format which can be written here "
            f"({why}): choose another, such as .png"
        ) from error


def columns(
    lines: Sequence[Sequence[str]], align: Callable[[str, int], str] = str.rjust, gap: int = 3
) -> str:
    """Return lines of cells as a table of aligned columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join((" " * gap).join(map(align, line, widths)).rstrip() for line in lines)


def add_output(parser: argparse.ArgumentParser, drawn: str = "") -> None:
    """Add the options of `show`: ``--json``, and ``--plot`` if there is something to be drawn."""
    shown = "a table" if drawn else "text"
    parser.add_argument("--json", action="store_true", help=f"print JSON instead of {shown}")
    if drawn:
        drawing = f"draw {drawn} as well; the suffix decides the format"
        parser.add_argument("--plot", type=Path, metavar="PATH", help=drawing)


def show(
    arguments: argparse.Namespace,
    document: dict[str, Any],
    text: str,
    draw: Callable[[Figure], None] | None = None,
) -> None:
    """Print JSON or text, and draw the figure, as the options of `add_output` say."""
    print(json.dumps(document, indent=2) if arguments.json else text)
    if draw is not None and arguments.plot is not None:
        from matplotlib.figure import Figure

        figure = Figure(layout="constrained")
        draw(figure)
        figure.savefig(arguments.plot, dpi=150)
        print(f"Figure: {arguments.plot}", file=sys.stderr)
