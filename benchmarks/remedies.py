"""Checks what `loader.advise()` proposes for pipelines whose best remedy is known.

In each round every pipeline is measured anew, and the first remedy is compared with the known one.
Exits with 1 if fewer than nine tenths of the pipelines get it in most rounds. Other programs on
the machine disturb it. Sources that wait sleep; those that compute loop in Python.
"""

from __future__ import annotations

import itertools
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from common import finish, new_parser, new_report, sample, shown
from torch.utils.data import DataLoader

import pyecho
from pyecho.bench.row import Row

ROW = np.zeros((64, 64), np.float32)
HUGE, SMALL = 10**10, 10**4
BATCH = {"batch_size": 8, "shuffle_buffer": 16}


class Items:
    """Items by index, each after some work."""

    def __init__(self, count: int, work: Callable[[], object]) -> None:
        self.count = count
        self.work = work

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if index >= self.count:
            raise IndexError(index)
        self.work()
        return ROW


class Stream:
    """The same without an index."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work

    def __iter__(self) -> Iterator[Any]:
        for _ in itertools.count():
            self.work()
            yield ROW


def waiting(seconds: float) -> Callable[[], None]:
    """Return work that waits, as for an answer of a server."""
    return lambda: time.sleep(seconds)


def computing(seconds: float) -> Callable[[], None]:
    """Return work that takes a processor for so long, whatever others do."""

    def work() -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    return work


def sharing(seconds: float) -> Callable[[], None]:
    """Return work that one process does at a time, as on a line that all share."""
    line = multiprocessing.Lock()

    def work() -> None:
        with line:
            time.sleep(seconds)

    return work


def augmented(batch: Any, rng: np.random.Generator) -> Any:
    """Augment slowly."""
    time.sleep(20e-3)
    return batch


@dataclass
class Pipeline:
    """A source, the seconds of a step, and the remedy that is known."""

    kind: str
    source: Any
    step: float
    options: dict[str, Any] = field(default_factory=dict)
    advise: dict[str, Any] = field(default_factory=dict)

    def first_remedy(self, steps: int) -> Any:
        """Return the first remedy that advise() finds."""
        with pyecho.EchoLoader(self.source, **{"factor": 1, **BATCH, **self.options}) as loader:
            return loader.advise(lambda _: time.sleep(self.step), steps=steps, **self.advise)


PIPELINES = {
    "rows in memory": Pipeline("-", np.zeros((SMALL, 64, 64), np.float32), 3e-3),
    "a step that takes longer": Pipeline("-", Items(HUGE, waiting(0.2e-3)), 8e-3),
    "small data, a slow store": Pipeline("memory", Items(SMALL, waiting(1e-3)), 2e-3),
    "huge data, answers that take time": Pipeline("workers", Items(HUGE, waiting(2e-3)), 4e-3),
    "huge data, a decoder in Python": Pipeline("workers", Items(HUGE, computing(1e-3)), 5e-3),
    "huge data, a slow decoder in Python": Pipeline("workers", Items(HUGE, computing(4e-3)), 4e-3),
    "huge data, a line that is full": Pipeline("echo", Items(HUGE, sharing(1e-3)), 3e-3),
    "small data, one epoch, a full line": Pipeline(
        "echo", Items(SMALL, sharing(1e-3)), 3e-3, advise={"epochs": 1}
    ),
    "a stream": Pipeline("echo", Stream(waiting(1e-3)), 3e-3),
    "a slow augmentation": Pipeline(
        "augmentation", Items(SMALL, waiting(0.2e-3)), 3e-3, {"augment": augmented}
    ),
    "a DataLoader with one worker": Pipeline(
        "workers",
        DataLoader(Items(HUGE, waiting(2e-3)), batch_size=8, num_workers=1),
        4e-3,
        {"batch_size": None, "shuffle_buffer": 0},
    ),
    "a consumer that reads": Pipeline("threads", Stream(waiting(0.5e-3)), 4e-3, {"threads": 0}),
    "too many repeats": Pipeline("echo", Stream(waiting(1e-3)), 4e-3, {"factor": 8}),
}
"""By name; `kind` is that of the best remedy."""


def main() -> int:
    """Print what was found for each pipeline; return 1 if too many are wrong."""
    options = new_parser(__doc__, rounds=3, steps=40).parse_args()
    report = new_report("remedies", "First remedies of advise()", options, steps=options.steps)
    found: dict[str, list[Any]] = {name: [] for name in PIPELINES}
    runs = [(name, each) for _ in range(options.rounds) for name, each in PIPELINES.items()]
    for name, pipeline in shown(runs, "advise"):
        found[name].append(pipeline.first_remedy(options.steps).remedies[0])
    right = 0
    for name, pipeline in PIPELINES.items():
        kinds = Counter(remedy.kind for remedy in found[name])
        right += kinds[pipeline.kind] > options.rounds / 2
        row = Row(
            name, sample([kinds[pipeline.kind]]), f"of {options.rounds}", target=pipeline.kind
        )
        report.add("How often the known remedy came first", [row])
        report.note(f"{name}: {dict(kinds)}; at last {found[name][-1]}")
    report.note(f"{right} of {len(PIPELINES)} pipelines right")
    finish(report, options)
    return int(right < 0.9 * len(PIPELINES))


if __name__ == "__main__":
    sys.exit(main())
