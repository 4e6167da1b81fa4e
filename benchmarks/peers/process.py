"""The runner's end of a worker: starts it, asks it, ends it."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).resolve().parent
STOP_SECONDS = 10.0
TAIL_CHARACTERS = 400


class WorkerFailed(Exception):
    """A contestant could not be started, has ended, or was too slow."""


class WorkerProcess:
    """A contestant's process, idle between requests.

    Parameters
    ----------
    python
        The interpreter of its environment.
    module
        The contestant's file.
    log
        Where its stderr goes.
    seconds
        How long an answer may take.
    """

    def __init__(self, python: Path, module: str, log: Path, seconds: float) -> None:
        self._seconds = seconds
        self._log = log
        self._rest = b""
        log.parent.mkdir(parents=True, exist_ok=True)
        # PASSIVE, because waiting threads of OpenMP would spin into the next contestant's turn, and
        # if they outnumber the free cores, keep each other from working.
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "TF_CPP_MIN_LOG_LEVEL": "2"}
        environment.pop("PYTHONPATH", None)
        with log.open("wb") as errors:
            # A session of its own, so that its worker processes end with it, and Ctrl-C reaches
            # only the runner.
            self._process = subprocess.Popen(
                [str(python), "-m", "peers.worker", module],
                cwd=HERE.parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and return the answer, or raise `WorkerFailed`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerFailed(self._end()) from error
        return self._read()

    def close(self) -> None:
        """End the process and its child processes."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self._kill()
        self._process.wait()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def __enter__(self) -> WorkerProcess:
        """Return the process."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self.close()

    def _read(self) -> dict[str, Any]:
        line = self._read_line()
        try:
            answer = json.loads(line)
        except ValueError:
            raise WorkerFailed(f"it said {line[:TAIL_CHARACTERS]!r}") from None
        if "error" in answer:
            raise WorkerFailed(answer["error"])
        return dict(answer)

    def _read_line(self) -> bytes:
        assert self._process.stdout is not None
        until = time.monotonic() + self._seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, until - time.monotonic())):
                    # It would take time from the others, and answer an outdated request later.
                    self._kill()
                    raise WorkerFailed(f"no answer within {self._seconds:.0f} s")
                more = os.read(self._process.stdout.fileno(), 1 << 16)
                if not more:
                    raise WorkerFailed(self._end())
                self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _end(self) -> str:
        """Say how the process ended."""
        try:
            status = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return f"it has ended with {how}: {self._tail() or 'without a word'}"

    def _tail(self) -> str:
        """Return the last words on its stderr."""
        try:
            lines = self._log.read_text(errors="replace").split("\n")
        except OSError:
            return ""
        words = [line.strip() for line in lines if line.strip()]
        return words[-1][-TAIL_CHARACTERS:] if words else ""
