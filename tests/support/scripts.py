"""Runs a script in an interpreter of its own in dev mode with warnings as errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyecho

LIMIT_SECONDS = 120
"""A script that takes longer hangs."""

PRELUDE = f"""
# The package under test, and these helpers, are found first.
import contextlib, itertools, os, sys, threading, time, gc
sys.path[:0] = {[str(Path(pyecho.__file__).parents[1]), str(Path(__file__).parent)]!r}
import numpy as np
import pyecho

NEVER = threading.Event()

def stuck(after):
    "A source that yields some rows and then blocks for ever."
    for number in range(after):
        yield np.full(64, number)
    NEVER.wait()
"""


def command(path: Path) -> list[str]:
    return [sys.executable, "-I", "-X", "dev", "-W", "error", str(path)]


@contextmanager
def started(script: str) -> Iterator[subprocess.Popen[str]]:
    """Start a script in a folder of its own. Kill it at the end if it is still running."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script.py"
        path.write_text(PRELUDE + textwrap.dedent(script))
        process = subprocess.Popen(
            command(path), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            process.stdout.close()
            process.stderr.close()


def finished(process: subprocess.Popen[str], code: int = 0, errors: str | None = "") -> str:
    """Wait for the end, check exit code and stderr (None: anything), and return stdout."""
    try:
        output, problems = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # faulthandler, on in dev mode, shows where it hangs
        _, problems = process.communicate()
        raise AssertionError(f"the script hangs:\n{problems}") from None
    assert process.returncode == code, problems
    if errors is not None:
        assert problems == errors
    return output


def run(script: str, code: int = 0, errors: str | None = "") -> str:
    """Run a script to its end: no hang, this exit code, nothing on stderr."""
    with started(script) as process:
        return finished(process, code, errors)


WAKEUP_SECONDS = 0.05
"""Longest time of a native wait before it looks for signals."""


def await_idle(process: subprocess.Popen[str], wakeups: int = 3) -> None:
    """Return once the main thread sleeps in a wait with regular wake-ups, as native waits do.

    Detects this from outside, by the number of times it yields its core. A thread that exchanges
    items with another one also does that, but more often.
    """
    status = Path(f"/proc/{process.pid}/task/{process.pid}/status")
    first, since = None, 0.0
    while process.poll() is None:
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        switches = int(fields["voluntary_ctxt_switches"])
        if first is None:
            first, since = switches, time.monotonic()
        if switches >= first + wakeups:
            if time.monotonic() - since >= (wakeups - 1) * WAKEUP_SECONDS:
                return
            first = None
        os.sched_yield()
    raise AssertionError(f"the script ended early: {process.communicate()}")
