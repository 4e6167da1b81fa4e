"""Finished runs on disk, so that no run is repeated."""

from __future__ import annotations

from pathlib import Path

from common.runs import Lines

from paper.conditions import REVISION, Job
from paper.train import Result


class Store(Lines):
    """A file of runs. Threads may share it.

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
        super().__init__(path)
        self._data = data
        self._machine = machine

    def result_of(self, job: Job) -> Result | None:
        """Return the result of a job if it has been done."""
        stored = self.get(self._key(job))
        return None if stored is None else Result.from_json(stored)

    def keep(self, job: Job, result: Result) -> None:
        """Keep the result of a job."""
        described = job.as_json(self._data[job.condition.workload])
        self.put(self._key(job), result.as_json(), job=described)

    def key_of_line(self) -> str:
        """Return the key under which the speed of the slow network is kept."""
        return f"line {REVISION} {self._data['fashion-more']} {self._machine}"

    def _key(self, job: Job) -> str:
        key = job.key(self._data[job.condition.workload])
        return f"{key} {self._machine}" if job.timed else key
