"""Results of runs, kept on disk as they come, so that an interrupted command goes on."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.progress import track

Job = tuple[str | float, ...]


class Lines:
    """A file of lines of JSON, each with a key and a result. Threads may share it.

    An interrupted write leaves a torn last line, which is skipped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._found: dict[str, Any] = {}
        if path.exists():
            for line in path.read_text(errors="replace").splitlines():
                try:
                    entry = json.loads(line)
                    self._found[entry["key"]] = entry["result"]
                except (ValueError, KeyError, TypeError):
                    continue

    def get(self, key: str) -> Any:
        """Return the result of a key, None if there is none."""
        with self._lock:
            return self._found.get(key)

    def put(self, key: str, result: Any, **described: Any) -> None:
        """Keep a result, in plain types."""
        line = json.dumps({"key": key, **described, "result": result})
        with self._lock:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            torn = self._path.exists() and self._path.read_bytes()[-1:] not in (b"", b"\n")
            with self._path.open("a") as file:
                file.write("\n" * torn + line + "\n")
            self._found[key] = result


def results_of(
    run: Callable[..., Any], jobs: Iterable[Job], output: Path, *, processes: int = 1
) -> dict[Job, Any]:
    """Return `run(*job)` of each job, in plain types.

    Runs are kept in ``output/runs``, and made again only once the module of `run` has changed.
    """
    source = Path(run.__code__.co_filename)
    version = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    lines = Lines(output / "runs" / f"{source.stem}.jsonl")
    keys = {job: json.dumps([version, run.__name__, *job]) for job in jobs}
    missing = [job for job, key in keys.items() if lines.get(key) is None]
    if missing:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            made = pool.imap_unordered(_Run(run), missing)
            for job, result in track(made, f"runs of {source.stem}", total=len(missing)):
                lines.put(keys[job], result)
    return {job: lines.get(key) for job, key in keys.items()}


class _Run:
    """A function that says which job its result is of."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run

    def __call__(self, job: Job) -> tuple[Job, Any]:
        return job, self._run(*job)
