"""Ends many interpreters quickly, by forking each from one that has imported everything."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyecho

PATHS = [str(Path(pyecho.__file__).parents[1]), str(Path(__file__).parent)]


class Nursery:
    """Runs scripts, each in an interpreter of its own in dev mode with warnings as errors.

    Parameters
    ----------
    modules
        Imported beforehand, in this order.
    """

    def __init__(self, *modules: str) -> None:
        program = Path(__file__).with_name("nursery.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-X", "dev", "-W", "error", program, ":".join(PATHS), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str) -> dict[str, Any]:
        """Run a script to its end, and return the answer of nursery.py."""
        print(json.dumps(textwrap.dedent(script)), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"the nursery has died: {self._process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End."""
        self._process.communicate()
