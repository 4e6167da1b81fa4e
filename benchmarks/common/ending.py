"""Handles the early end of a benchmark."""

from __future__ import annotations

import signal
import sys

INTERRUPTED = 130
"""The exit status after Ctrl-C."""
_TERMINATED = 143


def exit_when_terminated() -> None:
    """Let SIGTERM raise SystemExit, so that child processes end as well."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
