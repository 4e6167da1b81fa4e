"""How a benchmark ends before its time."""

from __future__ import annotations

import signal
import sys

INTERRUPTED = 130
"""The exit status after Ctrl-C."""
_TERMINATED = 143


def exit_when_terminated() -> None:
    """Let SIGTERM raise SystemExit, so that the processes that were started end as well."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
