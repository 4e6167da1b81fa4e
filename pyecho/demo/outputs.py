"""Where results go: checked before minutes of training, written after them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import DemoError


@dataclass(frozen=True)
class Output:
    """A file that the demonstration is to write.

    Parameters
    ----------
    option
        The command line option that names the file.
    path
        Where it goes.
    """

    option: str
    path: Path

    def check(self) -> None:
        """Fail early if the file could not be written; nothing is created.

        Raises
        ------
        DemoError
            If the path is a folder, lies in no folder, or must not be written.
        """
        named = f"{self.option} {self.path}"
        try:
            if self.path.is_dir():
                raise DemoError(f"{named} must be a file, but it is a folder: add a file name")
            folder = self.path.parent.absolute()
            if not folder.is_dir():
                raise DemoError(
                    f"{named} needs an existing folder, but {self.path.parent} is not a folder: "
                    "create it, or choose another path"
                )
            exists = self.path.exists()
        except OSError as error:
            raise DemoError(
                f"{named} must be a path that can be written to ({reason(error)}): "
                "choose another path"
            ) from error
        if not os.access(self.path if exists else folder, os.W_OK if exists else os.W_OK | os.X_OK):
            raise DemoError(
                f"{named} needs write permission, but you have none for "
                f"{'this file' if exists else folder}: choose another path, or change permissions"
            )


def check_outputs(outputs: Sequence[Output]) -> None:
    """Fail early if one of several files could not be written, or if two are the same file.

    Parameters
    ----------
    outputs
        The files.

    Raises
    ------
    DemoError
        If training would end without its results.
    """
    taken: dict[Path, Output] = {}
    for output in outputs:
        output.check()
        other = taken.setdefault(output.path.resolve(), output)
        if other is not output:
            raise DemoError(
                f"{other.option} and {output.option} need files of their own, but both are "
                f"{output.path}: change one of them"
            )


def write_outputs(writers: Sequence[tuple[Output, Callable[[Path], object]]]) -> None:
    """Write every file, even if another one fails, so that no result is lost needlessly.

    Parameters
    ----------
    writers
        Each file with the function that writes it.

    Raises
    ------
    DemoError
        If any file could not be written, after all others have been.
    """
    failures = []
    for output, write in writers:
        try:
            write(output.path)
        except OSError as error:
            failures.append(f"{output.option} {output.path} ({reason(error)})")
    if failures:
        raise DemoError(
            f"could not write {' and '.join(failures)}, though it was possible before training: "
            "check the folder and its free space, and run again"
        )


def reason(error: Exception) -> str:
    """Return the system's reason for an error, without the path, which the message names anyway.

    Parameters
    ----------
    error
        The exception that was raised.
    """
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
