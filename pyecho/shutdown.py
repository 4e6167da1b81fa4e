"""Ends what is running when the interpreter exits."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any

_alive: weakref.WeakSet[Any] = weakref.WeakSet()

JOIN_SECONDS = 2.0
"""How long the exit waits for a thread that is still inside a source or an augmentation."""


def watch(run: Any) -> None:
    """Have ``run.finish()`` and ``run.join(timeout)`` called at exit, if `run` is alive."""
    _alive.add(run)


# In a child process there are no threads to end, and their locks may be held for ever.
os.register_at_fork(after_in_child=_alive.clear)


@atexit.register
def _finish_all() -> None:
    runs = list(_alive)
    for run in runs:
        run.finish()
    for run in runs:
        run.join(JOIN_SECONDS)
