"""Example echoing against bare memcpy of the same rows.

The stage has as many workers as a loader would have; with none, the consumer makes the batches. The
limit for the targets copies with as many threads, at least one. The stage also has a producer and a
consumer, which copies while it waits, so the other limit is bare memcpy on every core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import partial

from pyecho.bench import _races
from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, Sample, interleaved
from pyecho.config import Config, available_cores

TINY_ROW_BYTES = 256
LARGE_ROW_BYTES = 100_000
BYTES_EMITTED = 1 << 30
"""About as many in a measurement."""


@dataclass(frozen=True)
class Workload:
    """The rows to echo."""

    row_bytes: int
    factor: int = 4
    batch_size: int = 256
    shuffle_buffer: int | None = None
    threads: int | None = None
    """Of the loader: None for as many as it would have."""

    def name(self) -> str:
        """Return the size of a row, and the other fields that differ from their defaults."""
        varied = [
            f"{field.name.replace('_', ' ')} {getattr(self, field.name):,}"
            for field in fields(self)[1:]
            if getattr(self, field.name) != field.default
        ]
        return ", ".join([f"gather {self.row_bytes:,} B rows", *varied])

    @property
    def pool(self) -> int:
        """Rows of the pool, by default 4,096 rows, or 512 large ones."""
        return self.shuffle_buffer or (512 if self.row_bytes >= LARGE_ROW_BYTES else 4096)

    @property
    def workers(self) -> int:
        """The number of threads that make batches; 0 if the consumer makes them."""
        return Config(batch_size=self.batch_size, threads=self.threads).threads_for(self.row_bytes)

    @property
    def fresh(self) -> int:
        """The number of rows to read.

        At least eight pools full, because only the producer works while the pool is filled. The
        number is bounded, so that a measurement ends.
        """
        rows = BYTES_EMITTED // (self.row_bytes * self.factor)
        return max(min(rows, 6_000_000 // self.factor), 8 * self.pool, self.batch_size)


def measure(rounds: int, progress: Progress, workloads: Iterable[Workload]) -> list[Row]:
    """Compare with bare memcpy, with as many threads and on every core, for each workload."""
    return [row for workload in workloads for row in _rows(rounds, progress, workload)]


def _rows(rounds: int, progress: Progress, workload: Workload) -> list[Row]:
    race = _races.GatherRace(
        row_bytes=workload.row_bytes,
        batch_size=workload.batch_size,
        shuffle_buffer=workload.pool,
        factor=workload.factor,
        fresh=workload.fresh,
        threads=workload.workers,
    )
    name, cores = workload.name(), available_cores()
    contestants: dict[str, Callable[[], float]] = {
        "memcpy": partial(race.memcpy_seconds, max(1, workload.workers)),
        "echo": race.echo_seconds,
        "all": partial(race.memcpy_seconds, cores),
    }
    ns = {
        each: sample.times(1e9 / (workload.fresh * workload.factor))
        for each, sample in interleaved(name, rounds, contestants, progress).items()
    }
    ratio = ns["all"] / ns["echo"]
    limit = f"memcpy, {_threads(cores)}"
    return [
        _row(workload, ns["echo"], ns["memcpy"]),
        Row(f"{name}, of all cores", ns["echo"], "ns", ns["all"], limit, ratio),
    ]


def _row(workload: Workload, echo: Sample, memcpy: Sample) -> Row:
    what, limit_name = workload.name(), f"memcpy, {_threads(max(1, workload.workers))}"
    if workload.row_bytes <= TINY_ROW_BYTES:
        over, target = f"{what}, over memcpy", "<= 25 ns"
        return Row(over, echo - memcpy, "ns", memcpy, limit_name, memcpy / echo, target)
    target = ">= 0.95" if workload.row_bytes >= LARGE_ROW_BYTES else ">= 0.90"
    return Row(what, echo, "ns", memcpy, limit_name, memcpy / echo, target)


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"
