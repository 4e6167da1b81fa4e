"""The worker: one contestant in its own environment, which answers requests through a pipe.

The runner starts it as `python -m peers.worker FD` from the folder of the benchmarks. It must not
import pyecho or anything else that only the runner has, unless the contestant does.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import gc
import importlib
import itertools
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from peers.work import Source, Work, finding


class Worker:
    """Works on request, and is idle in between."""

    def prepare(self, work: Work, function: str) -> None:
        """Make the source of a work, which a function ("module.name") will do."""
        self.release()
        self._work, self._source = work, Source(work)
        module, _, name = function.partition(".")
        self._function = getattr(importlib.import_module(f"peers.{module}"), name)

    def release(self) -> None:
        """Give the memory back, which other contestants need, too."""
        self._work = self._source = None
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)

    def check(self) -> dict[str, Any]:
        """Read the source once, and judge the whole output."""
        work = self._work
        most = 2 * work.rows * work.factor // work.batch
        with self._started(1) as batches:
            return finding(work, itertools.islice(batches, most))

    def measure(self, batches: int) -> float:
        """Warm up with a period, then return the seconds of this many batches."""
        with self._started(None) as iterator:
            self._use(iterator, self._work.period)
            began = time.perf_counter()
            self._use(iterator, batches)
            seconds = time.perf_counter() - began
            next(iterator)  # raises at an end of the endless source, where fewer were timed
            del iterator
        gc.collect()  # some loaders end their threads only when a cycle of references is found
        return seconds

    def _started(self, passes: int | None) -> Any:
        self._source.passes = passes
        return contextlib.contextmanager(self._function)(self._work, self._source)

    def _use(self, iterator: Iterator[Any], batches: int) -> None:
        uses = itertools.islice(iterator, batches)
        if self._work.kind == "batches":
            # A repeat costs less than the steps of a loop would.
            collections.deque(uses, maxlen=0)
        else:
            for _batch in uses:  # like a training loop, which holds one and requests the next
                pass


def main() -> None:
    """Answer until the runner closes the pipe."""
    with contextlib.suppress(OSError, AttributeError):  # end if it is killed; Linux only
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    runner, worker = Connection(int(sys.argv[1])), Worker()
    with contextlib.suppress(EOFError):
        while True:
            name, *arguments = runner.recv()
            try:
                answer = getattr(worker, name)(*arguments)
            except Exception as error:
                runner.send((None, f"{type(error).__name__}: {error}"))
            else:
                runner.send((answer, ""))


if __name__ == "__main__":
    main()
