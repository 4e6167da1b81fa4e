"""The worker: one contestant in its own environment, which answers requests line by line.

Run by the runner as `python -m peers.worker MODULE` from the folder of the benchmarks. Requests and
answers are JSON objects, one a line; libraries that print to stdout reach stderr instead. It must
not import pyecho or anything else that only the runner has.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import gc
import importlib
import importlib.metadata
import itertools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

import numpy as np

from peers.workload import Finding, Source, Work, ids

SETTLE_SECONDS = 0.5


class Worker:
    """Works on request, and is idle in between."""

    def __init__(self, module: str) -> None:
        self._module = importlib.import_module(f"peers.contestants.{module}")
        self._work: Work | None = None
        self._source: Source | None = None
        self._function = ""
        self._idle_since: tuple[float, float] | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Execute a request and return the answer."""
        idle = self._idle_cpu_share()
        actions: dict[str, Callable[..., dict[str, Any]]] = {
            "versions": self._versions,
            "prepare": self._prepare,
            "check": self._check,
            "measure": self._measure,
            "release": self._release,
        }
        action = request.pop("do")
        answer = actions[action](**request)
        gc.collect()  # some loaders end their threads only when a cycle of references is found
        self._idle_since = (time.monotonic(), time.process_time())
        return {**answer, "idle_cpu_share": idle}

    def _versions(self, packages: list[str]) -> dict[str, Any]:
        return {
            "python": sys.version.split()[0],
            "versions": {name: importlib.metadata.version(name) for name in packages},
        }

    def _prepare(self, work: dict[str, Any], function: str) -> dict[str, Any]:
        self._release()
        self._work = Work.from_json(work)
        self._source = Source(self._work)
        self._function = function
        return {}

    def _release(self) -> dict[str, Any]:
        self._work = self._source = None
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # the other contestants need the memory, too
        return {}

    def _start(self, passes: int | None) -> Any:
        assert self._source is not None, "prepare comes first"
        self._source.passes = passes
        return getattr(self._module, self._function)(self._work, self._source)

    def _check(self) -> dict[str, Any]:
        """Read the source once, and check the whole output."""
        work = self._work
        assert work is not None, "prepare comes first"
        most = 2 * work.rows * work.factor // work.batch
        with self._start(1) as batches:
            found = [
                ids(batch)[: work.batch if work.kind == "examples" else 1]
                for batch in itertools.islice(batches, most)
            ]
        emitted = np.concatenate(found) if found else np.empty(0, np.int64)
        if work.kind == "batches":
            # A batch counts as one item, with the number of its first row.
            emitted = emitted // work.batch
            items = dataclasses.replace(
                work, rows=work.rows // work.batch, pool=1, batch=1, threads=1
            )
        else:
            items = work
        finding = Finding.of(items, emitted)
        return {
            "exact": finding.exact,
            "uses": list(finding.uses),
            "distinct": finding.distinct,
            "mixing": finding.mixing,
        }

    def _measure(self, batches: int) -> dict[str, Any]:
        """Warm up with a period, then time this many batches."""
        work = self._work
        assert work is not None, "prepare comes first"
        with self._start(None) as iterator:
            _use(iterator, work.period, work.kind)
            began = time.perf_counter()
            _use(iterator, batches, work.kind)
            seconds = time.perf_counter() - began
            next(iterator)  # raises at an end of the endless source, where fewer batches were timed
            del iterator
        return {"seconds": seconds}

    def _idle_cpu_share(self) -> float | None:
        """Return the share of a core used since the last answer, which should be 0."""
        if self._idle_since is None:
            return None
        wall, cpu = self._idle_since
        waited = time.monotonic() - wall
        return (time.process_time() - cpu) / waited if waited > SETTLE_SECONDS else None


def _use(iterator: Any, batches: int, kind: str) -> None:
    """Take this many batches."""
    uses = itertools.islice(iterator, batches)
    if kind == "batches":
        # A repeat costs less than the steps of a loop would.
        collections.deque(uses, maxlen=0)
    else:
        for _batch in uses:  # like a training loop, which holds one and requests the next
            pass


def serve(worker: Worker, requests: TextIO, answers: TextIO) -> None:
    """Answer until the requests end."""
    for line in requests:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def end_with_parent() -> None:
    """End this process if the runner is killed. Linux only."""
    set_parent_death_signal = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def main() -> None:
    """Serve on stdin and the original stdout."""
    end_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        worker = Worker(sys.argv[1])
    except Exception as error:
        traceback.print_exc()
        answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        return
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    serve(worker, sys.stdin, answers)


if __name__ == "__main__":
    main()
