"""The source whose items workers make."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from pyecho._core import ConfigError
from pyecho.config import Config
from pyecho.source.base import Pass, Source
from pyecho.source.indexed import MapStyleSource
from pyecho.source.sniff import tell_epoch
from pyecho.workers.passes import WorkerPass
from pyecho.workers.pool import Pool, Worker
from pyecho.workers.process import Job
from pyecho.workers.start import ProcessWorker, ThreadWorker


class WorkerSource(MapStyleSource):
    """Reads by index in worker processes or threads, which serve all epochs."""

    def __init__(self, inner: Source, config: Config) -> None:
        super().__init__(inner, config)
        self.fills_slots = not config.splits_batches
        self._writing: list[Any] = []  # spec of the slots that this fills, and `to_array`; or none
        self._pool: Pool | None = None
        self._context: Any = None
        if config.workers == "process":
            self._context = _context(config.multiprocessing_context)

    def prepare(self) -> None:
        """Start the workers. In the consumer's thread, so that they are forked of few threads."""
        self._running().start()

    def _running(self) -> Pool:
        pool = self._pool
        if pool is None or pool.closed or pool.process != os.getpid():
            config = self._config
            job = Job(
                get=self._get,
                tell=partial(tell_epoch, self.object),
                dataset=self.object,
                workers=config.num_workers,
                seed=config.seed,
                rank=config.rank,
                ranks=config.ranks,
                init=config.worker_init_fn,
            )
            start: Callable[[int], Worker] = partial(ProcessWorker, self._context, job)
            if config.workers == "thread":
                start = partial(ThreadWorker, job)
            self._pool = pool = Pool(config.num_workers, start)
        return pool

    def _open(self, at: int) -> Pass:
        indices = self._indices(at)
        return Pass(WorkerPass(self._running(), indices, self.epoch, at, self._writing))

    def fill_slots(self, spec: Any, to_array: Callable[[Any], Any], together: int) -> None:
        """Have passes fill slots of a stage with items of this spec."""
        self._writing[:] = spec, to_array, together

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None and self._pool.process == os.getpid():
            self._pool.close()

    def join(self, seconds: float) -> None:
        """Wait this long at most for their end."""
        pool = self._pool
        if pool is not None and pool.process == os.getpid():
            pool.join(seconds)
            self._pool = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the workers, which serve this one only."""
        return {**self.__dict__, "_pool": None, "_writing": []}


def _context(given: Any) -> Any:
    """Return a context of multiprocessing."""
    if given is None or isinstance(given, str):
        try:
            return multiprocessing.get_context(given)
        except ValueError:
            pass
    elif callable(getattr(given, "Process", None)):
        return given
    known = ", ".join(map(repr, multiprocessing.get_all_start_methods()))
    raise ConfigError(
        f"multiprocessing_context must be one of {known}, or a context of multiprocessing, got "
        f"{given!r}"
    )
