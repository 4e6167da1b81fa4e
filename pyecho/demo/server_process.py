"""Start, steer and stop the image server from the trainer's process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

from pyecho.tools.arguments import CommandError

from . import server

_STOP_SECONDS = 5.0


class ServerProcess:
    """An image server in a process of its own.

    It ends with `close`, and also if this program ends in any other way, because the server stops
    as soon as its standard input closes.
    """

    def __init__(self, root: Path) -> None:
        # A new session keeps Ctrl-C in the terminal for the trainer, which then stops the server.
        self._process = subprocess.Popen(
            [sys.executable, "-I", server.__file__, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            self.port = int(self._reply().removeprefix("listening"))
        except BaseException:
            self.close()
            raise

    def set_bandwidth(self, bytes_per_second: float) -> None:
        """Limit the image bytes of all connections, from now on; ``inf`` lifts the limit."""
        assert self._process.stdin is not None
        # If the server has ended, the missing reply below reports it.
        with contextlib.suppress(BrokenPipeError):
            print("bandwidth", bytes_per_second, file=self._process.stdin, flush=True)
        self._reply()

    def close(self) -> None:
        """Stop the server. Closing twice does no harm."""
        try:
            self._process.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _reply(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise CommandError(
                f"the image server stopped with exit code {code}: run the demonstration again"
            )
        return line
