"""Finished runs on disk, a line of JSON each, so that no run is repeated."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from paper.conditions import REVISION, Job
from paper.train import Result


class Store:
    """A file of lines, each with a key and a result. Threads may share it.

    An interrupted write leaves a torn last line, which is skipped.

    Parameters
    ----------
    path
        The file; it need not exist.
    data
        The hash of the data of each workload.
    machine
        The machine of the timed runs. Other runs give nearly the same result on any machine.
    """

    def __init__(self, path: Path, data: dict[str, str], machine: str) -> None:
        self._path = path
        self._data = data
        self._machine = machine
        self._lock = threading.Lock()
        self._found: dict[str, Any] = {}
        if path.exists():
            for line in path.read_text(errors="replace").splitlines():
                try:
                    entry = json.loads(line)
                    self._found[entry["key"]] = entry["result"]
                except (ValueError, KeyError, TypeError):
                    continue

    def get(self, job: Job) -> Result | None:
        """Return the result of a job if it has been done."""
        stored = self.get_other(self._key(job))
        return None if stored is None else Result.from_json(stored)

    def put(self, job: Job, result: Result) -> None:
        """Keep a result."""
        described = job.as_json(self._data[job.condition.workload])
        self.put_other(self._key(job), result.as_json(), job=described)

    def get_other(self, key: str) -> Any:
        """Return a value that was stored in addition to the runs."""
        with self._lock:
            return self._found.get(key)

    def put_other(self, key: str, value: Any, **described: Any) -> None:
        """Store another value, such as a calibration."""
        line = json.dumps({"key": key, **described, "result": value})
        with self._lock:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            torn = self._path.exists() and self._path.read_bytes()[-1:] not in (b"", b"\n")
            with self._path.open("a") as file:
                file.write("\n" * torn + line + "\n")
            self._found[key] = value

    def key_of_line(self) -> str:
        """Return the key under which the speed of the slow network is kept."""
        return f"line {REVISION} {self._data['fashion-more']} {self._machine}"

    def _key(self, job: Job) -> str:
        key = job.key(self._data[job.condition.workload])
        return f"{key} {self._machine}" if job.timed else key
