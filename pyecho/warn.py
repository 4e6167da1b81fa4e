"""Warnings that point to the code that uses pyecho."""

from __future__ import annotations

import sys
import threading
import warnings
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any

_OURS = (str(Path(__file__).parent) + "/", threading.__file__)

Place = tuple[str, int, str, dict[Any, Any]]
"""A line of code: file, number, module, and the warnings that were given there."""

place_of_caller: ContextVar[Place] = ContextVar(
    "place_of_caller", default=(__file__, 1, __name__, {})
)
"""In a thread of pyecho's: the line outside of pyecho that it works for."""


def outer_place() -> Place:
    """Return the innermost line outside of pyecho that the calling thread is in, or works for."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    if frame is None:
        return place_of_caller.get()
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    return frame.f_code.co_filename, frame.f_lineno, names.get("__name__", "<string>"), registry


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the `outer_place`, as ``warnings.warn(skip_file_prefixes=)`` of Python 3.12 would."""
    file, line, module, registry = outer_place()
    warnings.warn_explicit(message, category, file, line, module=module, registry=registry)
